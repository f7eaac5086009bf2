// Verifies deliveries with the public library. Standard input: {library, cases: [{secret, headers, body, now_s}]},
// bodies in base64. Standard output: a list of booleans. `now_s` is what the receiver's clock shows.

const { readFileSync } = require("node:fs");
const { library, cases } = JSON.parse(readFileSync(0, "utf8"));
const { Webhook, WebhookVerificationError } = require(library);

function verified({ secret, headers, body, now_s }) {
  Date.now = () => now_s * 1000;
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers, { jsonParse: false });
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

console.log(JSON.stringify(cases.map(verified)));
