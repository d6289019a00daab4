// The commands of the extension, and the documents in which a thread and its diffs are shown.

import * as vscode from "vscode";
import { Decision, Thread } from "./thread";

const SCHEME = "app-server";

let thread: Thread | undefined;
let address: vscode.Uri | undefined;
const changed = new vscode.EventEmitter<vscode.Uri>();

export function activate(context: vscode.ExtensionContext): void {
  const commands: Record<string, (...args: string[]) => unknown> = {
    "appServer.start": () => open(),
    "appServer.resume": (id?: string) => open(id ?? chosen),
    "appServer.say": async (text?: string) => {
      const words = text ?? (await vscode.window.showInputBox({ prompt: "Say" }));
      return words ? thread?.say(words) : undefined;
    },
    "appServer.accept": () => decide("accept"),
    "appServer.acceptForSession": () => decide("acceptForSession"),
    "appServer.decline": () => decide("decline"),
    "appServer.cancel": () => decide("cancel"),
    "appServer.showDiff": showDiff,
    "appServer.interrupt": () => thread?.interrupt(),
  };
  for (const [name, run] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(name, reported(run)));
  }
  const provider = {
    onDidChange: changed.event,
    provideTextDocumentContent: () => thread?.text ?? "",
  };
  context.subscriptions.push(vscode.workspace.registerTextDocumentContentProvider(SCHEME, provider));
}

export function deactivate(): void {
  thread?.stop();
}

/** The same function, whose failure the user is told. */
function reported(run: (...args: string[]) => unknown): (...args: string[]) => Promise<unknown> {
  return async (...args) => {
    try {
      return await run(...args);
    } catch (error) {
      vscode.window.showErrorMessage(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
}

/** Lets the user choose a stored thread. */
async function chosen(from: Thread): Promise<string | undefined> {
  const rows = (await from.stored()).map((each) => ({
    label: (each.name ?? each.preview).replace(/\s+/g, " "),
    description: each.cwd,
    id: each.id,
  }));
  return (await vscode.window.showQuickPick(rows, { placeHolder: "Go on with" }))?.id;
}

/** Opens a new thread, the stored one with an id, or the one that `resume` chooses. */
async function open(resume?: string | typeof chosen): Promise<string | undefined> {
  thread?.stop();
  const command = vscode.workspace.getConfiguration("appServer").get<string[]>("command", ["app-server"]);
  const cwd = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? process.cwd();
  const opened = new Thread(command, cwd, () => {
    if (thread === opened && address !== undefined) {
      changed.fire(address);
      void vscode.commands.executeCommand("setContext", "appServer.asked", opened.asks);
    }
  });
  thread = opened;
  await opened.initialize();
  const id = typeof resume === "function" ? await resume(opened) : resume;
  if (typeof resume === "function" && id === undefined) {
    opened.stop();
    return undefined;
  }
  await opened.open(id);
  address = vscode.Uri.parse(`${SCHEME}:${opened.id}.md`);
  changed.fire(address);
  await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(address));
  return opened.id;
}

function decide(decision: Decision): void {
  thread?.decide(decision);
}

async function showDiff(): Promise<void> {
  const content = thread?.diff() ?? "";
  const document = await vscode.workspace.openTextDocument({ content, language: "diff" });
  await vscode.window.showTextDocument(document, { viewColumn: vscode.ViewColumn.Beside, preview: true });
}
