// Receives copies at the same time, beside page.mjs; prints the answers to them.
import assert from "node:assert";
import pg from "pg";
import { receive } from "./page.mjs";

const pool = new pg.Pool({ max: 10 });
const credit = (client, body) => client.query("UPDATE account SET balance = balance + $1", [Number(body)]);

const copies = Array.from({ length: 8 }, (_, n) => receive(pool, `key-${n % 2}`, "10", credit));
assert.deepStrictEqual(await Promise.all(copies), Array(8).fill(200));

// The first one fails after its effect, while the second one waits for it.
let fail;
const failed = new Promise((_, reject) => (fail = reject));
let inside;
const started = new Promise((resolve) => (inside = resolve));
const first = receive(pool, "key-3", "10", async (client, body) => {
  await credit(client, body);
  inside();
  await failed;
});
await started;
const second = receive(pool, "key-3", "10", credit);
fail(new Error("after the effect, before the commit"));
await assert.rejects(first, /after the effect/);
assert.strictEqual(await second, 200);

const slow = receive(pool, "key-4", "10", async (client, body) => {
  await credit(client, body);
  const impatient = new pg.Pool({ max: 1 });
  // A lock timeout of the page's own, of a tenth of a second here.
  const { receive: hurried } = await import("./hurried.mjs");
  assert.strictEqual(await hurried(impatient, "key-4", "10", credit), 409);
  await impatient.end();
});
assert.strictEqual(await slow, 200);

const { rows } = await pool.query("SELECT balance FROM account");
assert.strictEqual(rows[0].balance, 40);
await pool.end();
console.log(1);
