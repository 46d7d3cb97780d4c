// Asks a server one question of each type with TypeSafe's SDK and prints what the SDK made of the replies.
// Usage: node ask.cjs NODE_FOLDER BASE_URL
const { createRequire } = require("node:module");
const path = require("node:path");

const [folder, baseURL] = process.argv.slice(2);
const sdk = createRequire(path.join(path.resolve(folder), "here.js"))("@typesafe-ai/sdk");

async function main() {
  const client = new sdk.TypeSafeClient({ apiKey: "any", baseURL });
  const response = await client.systemOne({
    state: { ticket: "Card was charged two times" },
    questions: {
      refund: sdk.noul("Does the writer ask for money back?"),
      queue: sdk.choice("Where should it go?", { billing: "payments", other: null }),
      heat: sdk.score("How angry?", ["calm", "annoyed", "furious"]),
    },
  });
  let refusal;
  try {
    await client.systemOne({ state: "x", model: "no-such-model", questions: { q: sdk.noul("Yes?") } });
  } catch (error) {
    refusal = { name: error.constructor.name, message: error.message };
  }
  console.log(JSON.stringify({ response, refusal, models: await client.models.list() }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
