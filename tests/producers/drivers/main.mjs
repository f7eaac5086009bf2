// Plays the story: `node main.mjs pg` or `node main.mjs knex`, beside page.mjs.
import { AsyncLocalStorage } from "node:async_hooks";
import { context, propagation, ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import Knex from "knex";
import pg from "pg";
import * as page from "./page.mjs";

const active = new AsyncLocalStorage();
context.setGlobalContextManager({
  active: () => active.getStore() ?? ROOT_CONTEXT,
  with: (value, work, that, ...given) => active.run(value, () => work.call(that, ...given)),
  bind: (value, work) => (...given) => active.run(value, () => work(...given)),
});
propagation.setGlobalPropagator(new W3CTraceContextPropagator());

const [, traceId, spanId] = process.env.TRACEPARENT.split("-");
const span = trace.wrapSpanContext({ traceId, spanId, traceFlags: 1 });
const inSpan = (work) => context.with(trace.setSpan(ROOT_CONTEXT, span), work);
const created = [1001, 1002, 1003];

async function refused(work) {
  try {
    await work();
  } catch (error) {
    if (error.message.includes("refused at COMMIT")) return;
    throw error;
  }
  throw new Error("order 13 was paid");
}

if (page.currentTraceparent() !== undefined) throw new Error("a trace without a span");
if (process.argv[2] === "pg") {
  const pool = new pg.Pool({ max: 1 });
  console.log(await inSpan(() => page.pay(pool, 42, "19.99", page.currentTraceparent())));
  await refused(() => page.pay(pool, 13, "19.99"));
  await page.create(pool, created);
  await pool.end();
} else {
  const knex = Knex({ client: "pg", connection: {} });
  console.log(await inSpan(() => page.payWithKnex(knex, 42, "19.99", page.currentTraceparent())));
  await refused(() => page.payWithKnex(knex, 13, "19.99"));
  await page.createWithKnex(knex, created);
  await knex.destroy();
}
