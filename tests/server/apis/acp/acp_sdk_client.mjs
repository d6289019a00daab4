// An editor made of the official SDK of the Agent Client Protocol, led by lines of JSON on stdin.
//
//     node acp_sdk_client.mjs SDK KIND AGENT ARG...
//
// A line {id, method, params} is a request to the agent; its answer is printed as {id, result} or {id, error}. A line without
// an id is a notification. Updates are printed as {update}. Questions are answered with the option of that KIND, and
// printed as {asked}.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";

const [sdkPath, kind, command, ...args] = process.argv.slice(2);
const sdk = await import(sdkPath);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const app = sdk.client({ name: "editor" });
app.onRequest("session/request_permission", ({ params }) => {
  print({ asked: params });
  const option = params.options.find((each) => each.kind === kind);
  return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
});
app.onNotification("session/update", ({ params }) => print({ update: params.update }));

const connected = app.connectWith(
  sdk.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)),
  async (connection) => {
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method, params } = JSON.parse(line);
      if (id === undefined) {
        await connection.notify(method, params);
      } else {
        connection.request(method, params).then(
          (result) => print({ id, result }),
          (error) => print({ id, error: { code: error.code, message: error.message } }),
        );
      }
    }
  },
);
await connected;
agent.stdin.end();
