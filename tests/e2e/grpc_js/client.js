// Calls probe.sleep in each way that a client can: node client.js 127.0.0.1:8001
// Prints what came of it, as JSON. scripts/bench interop grpc-js runs it.
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const proto = loader.loadSync(path.join(__dirname, "inference.proto"), { keepCase: true });
const { GRPCInferenceService } = grpc.loadPackageDefinition(proto).inference;
const client = new GRPCInferenceService(process.argv[2], grpc.credentials.createInsecure());

function sleeping(seconds, id = "") {
  const input = { name: "seconds", datatype: "FP64", shape: [1], contents: { fp64_contents: [seconds] } };
  return { model_name: "probe.sleep", id, inputs: [input] };
}

// The code of a call and the id of its answer. Cancels it after a time, if one is given.
function infer(request, options = {}, cancelAfterMs = undefined) {
  return new Promise((resolve) => {
    const call = client.ModelInfer(request, options, (error, answer) => {
      resolve({ code: error ? error.code : 0, id: answer ? answer.id : null });
    });
    if (cancelAfterMs !== undefined) setTimeout(() => call.cancel(), cancelAfterMs);
  });
}

// The ids of the answers of a stream, or the errors in their places.
function stream(requests) {
  return new Promise((resolve, reject) => {
    const answers = [];
    const call = client.ModelStreamInfer();
    call.on("data", (answer) => answers.push(answer.error_message ? "error" : answer.infer_response.id));
    call.on("error", reject);
    call.on("end", () => resolve(answers));
    for (const request of requests) call.write(request);
    call.end();
  });
}

async function main() {
  const ids = Array.from({ length: 50 }, (_, number) => String(number));
  const unary = await Promise.all(ids.map((id) => infer(sleeping(0, id))));
  const streamed = await stream([...ids.map((id) => sleeping(0, id)), { model_name: "nothing" }, sleeping(0, "last")]);
  const unknown = await infer({ model_name: "nothing" });
  const cancelled = await infer(sleeping(1), {}, 200);
  const late = await infer(sleeping(1), { deadline: Date.now() + 200 });
  const after = await infer(sleeping(0, "after"));
  console.log(JSON.stringify({ unary, streamed, unknown, cancelled, late, after }));
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
