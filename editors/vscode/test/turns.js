// Plays the compiled extension in Node with a stand-in for the module `vscode`: a turn with two approvals, one that is
// interrupted, and the thread again. $APP_SERVER is the server, $RESULT the file for what was seen, the one argument
// the folder of the compiled extension.

const { once, EventEmitter } = require("node:events");
const { writeFileSync } = require("node:fs");
const Module = require("node:module");
const path = require("node:path");

const commands = new Map();
const context = {};
const errors = [];
const happened = new EventEmitter();
let provider;
let shown;
let offered;

class Emitter {
  constructor() {
    this.listeners = [];
    this.event = (listener) => this.listeners.push(listener);
  }

  fire(value) {
    this.listeners.forEach((listener) => listener(value));
  }
}

const vscode = {
  EventEmitter: Emitter,
  Uri: { parse: (text) => ({ text }) },
  ViewColumn: { Beside: -2 },
  commands: {
    registerCommand: (name, run) => commands.set(name, run),
    executeCommand: async (name, key, value) => {
      if (name === "setContext") {
        context[key] = value;
      }
    },
  },
  window: {
    showErrorMessage: (text) => errors.push(text),
    showInputBox: async () => undefined,
    showQuickPick: async (rows) => (offered = rows)[0],
    showTextDocument: async (document) => (shown = document),
  },
  workspace: {
    workspaceFolders: [{ uri: { fsPath: process.cwd() } }],
    getConfiguration: () => ({ get: () => [process.env.APP_SERVER] }),
    registerTextDocumentContentProvider: (scheme, given) => {
      provider = given;
      provider.onDidChange(() => happened.emit("change"));
    },
    openTextDocument: async (what) => what,
  },
};

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

const extension = require(path.join(process.argv[2], "extension.js"));
const manifest = require("../package.json");
const text = () => provider.provideTextDocumentContent();

async function until(what, holds) {
  const deadline = setTimeout(() => {
    console.error(`never came: ${what}\n${text()}\n${errors}`);
    process.exit(1);
  }, 60000);
  while (!holds()) {
    await once(happened, "change");
  }
  clearTimeout(deadline);
}

const says = (part) => until(part, () => text().includes(part));

/** Runs what the manifest binds to the key, if it is in force. */
function press(key) {
  const bound = manifest.contributes.keybindings.find((each) => each.key === key);
  if (bound.when !== undefined && !context[bound.when]) {
    throw new Error(`${key} is not in force`);
  }
  return commands.get(bound.command)();
}

async function play() {
  const seen = {};
  extension.activate({ subscriptions: [] });
  seen.id = await commands.get("appServer.start")();
  await commands.get("appServer.say")("please begin");
  await says("Run this command?");
  await press("ctrl+alt+y");
  await says("Change these files?");
  await press("ctrl+alt+d");
  seen.diff = shown.content;
  await press("ctrl+alt+y");
  await says("All done.");
  await commands.get("appServer.say")("and now?");
  await says("half");
  await press("ctrl+alt+c");
  await says("_interrupted_");
  seen.live = text();
  await commands.get("appServer.resume")();
  seen.offered = offered[0].label;
  seen.again = text();
  await commands.get("appServer.say")("once more");
  await says("no more credit");
  extension.deactivate();
  await says("The server has ended");
  seen.exit = Number(/has ended \((\d+)\)/.exec(text())[1]);
  if (errors.length > 0) {
    throw new Error(errors.join("\n"));
  }
  writeFileSync(process.env.RESULT, JSON.stringify(seen));
}

play().catch((error) => {
  console.error(error);
  process.exit(1);
});
