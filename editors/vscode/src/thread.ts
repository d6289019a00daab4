// One thread: what the server tells of it becomes text, what the user decides goes to the server. Knows no editor.

import { Connection, Listener } from "./connection";
import type { CommandExecutionApprovalDecision } from "./protocol/v2/CommandExecutionApprovalDecision";
import type { FileUpdateChange } from "./protocol/v2/FileUpdateChange";
import type { RequestId } from "./protocol/v2/RequestId";
import type { ServerNotification } from "./protocol/v2/ServerNotification";
import type { ServerRequest } from "./protocol/v2/ServerRequest";
import type { Thread as StoredThread } from "./protocol/v2/Thread";
import type { ThreadItem } from "./protocol/v2/ThreadItem";

export type Decision = Extract<CommandExecutionApprovalDecision, string>;

const MOST_LISTED = 50;

interface Question {
  id: RequestId;
  item: string;
}

export class Thread implements Listener {
  id: string | undefined;
  text = "";
  private turn: string | undefined;
  private turnDiff = "";
  private questions: Question[] = [];
  private shown: string | undefined;
  private readonly items = new Map<string, ThreadItem>();
  private readonly streamed = new Set<string>();
  private readonly connection: Connection;

  /** `changed` is called when the text or the questions have changed. */
  constructor(command: readonly string[], private readonly cwd: string, private readonly changed: () => void) {
    this.connection = new Connection(command, cwd, this);
  }

  /** Says who this is; before anything else. */
  async initialize(): Promise<void> {
    const clientInfo = { name: "app-server-vscode", title: null, version: "1.0.0" };
    await this.connection.request("initialize", { clientInfo, capabilities: null });
    this.connection.initialized();
  }

  /** The stored threads, the latest first. */
  async stored(): Promise<StoredThread[]> {
    return (await this.connection.request("thread/list", { limit: MOST_LISTED, sortKey: "updated_at" })).data;
  }

  /** Opens the stored thread with that id, or a new one. */
  async open(resume?: string): Promise<void> {
    const opened =
      resume === undefined
        ? await this.connection.request("thread/start", { cwd: this.cwd })
        : await this.connection.request("thread/resume", { threadId: resume });
    this.showStored(opened.thread);
    this.id = opened.thread.id;
  }

  get running(): boolean {
    return this.turn !== undefined;
  }

  get asks(): boolean {
    return this.questions.length > 0;
  }

  /** Begins a turn; where one runs, the words join it. */
  async say(text: string): Promise<void> {
    await this.connection.request("turn/start", {
      threadId: this.id ?? "",
      input: [{ type: "text", text, text_elements: [] }],
    });
  }

  async interrupt(): Promise<void> {
    if (this.turn !== undefined) {
      await this.connection.request("turn/interrupt", { threadId: this.id ?? "", turnId: this.turn });
    }
  }

  /** Answers the oldest question that is open. */
  decide(decision: Decision): void {
    const question = this.questions.shift();
    if (question !== undefined) {
      this.connection.reply(question.id, { decision });
      this.note(`→ ${decision}`);
    }
  }

  /** What is asked about, or else what the turn has changed. */
  diff(): string {
    const item = this.items.get(this.questions[0]?.item ?? "");
    return item?.type === "fileChange" ? item.changes.map(changeText).join("\n") : this.turnDiff;
  }

  stop(): void {
    this.connection.stop();
  }

  // --- what the server says
  ended(code: number | null): void {
    this.turn = undefined;
    this.questions = [];
    this.note(`_The server has ended (${code ?? "it could not be started"})._`);
  }

  asked(request: ServerRequest): void {
    switch (request.method) {
      case "item/commandExecution/requestApproval":
        this.ask(request.id, request.params.itemId, "Run this command?", request.params);
        break;
      case "item/fileChange/requestApproval":
        this.ask(request.id, request.params.itemId, "Change these files?", request.params);
        break;
      default:
        this.connection.refuse(request.id, `${request.method} is not supported by this client`);
    }
  }

  notified({ method, params }: ServerNotification): void {
    switch (method) {
      case "turn/started":
        this.turn = params.turn.id;
        this.turnDiff = "";
        break;
      case "turn/completed":
        this.turn = undefined;
        if (params.turn.status !== "completed") {
          const reason = params.turn.error ? `: ${params.turn.error.message}` : "";
          this.note(`_${params.turn.status}${reason}_`);
        }
        break;
      case "error":
        this.note(`_${params.willRetry ? "retrying: " : ""}${params.error.message}_`);
        break;
      case "turn/diff/updated":
        this.turnDiff = params.diff;
        break;
      case "item/started":
        this.items.set(params.item.id, params.item);
        this.begin(params.item);
        break;
      case "item/agentMessage/delta":
      case "item/commandExecution/outputDelta":
        this.streamed.add(params.itemId);
        this.add(params.itemId, params.delta);
        break;
      case "item/completed":
        this.items.set(params.item.id, params.item);
        this.end(params.item);
        break;
      case "serverRequest/resolved":
        this.questions = this.questions.filter((question) => question.id !== params.requestId);
        this.changed();
        break;
    }
  }

  /** The question repeats what it is about, so that the last lines are enough to answer it. */
  private ask(
    id: RequestId,
    item: string,
    question: string,
    params: { command?: string | null; reason?: string | null },
  ): void {
    this.questions.push({ id, item });
    const about = this.items.get(item);
    const lines = [`**${question}**`];
    const command = params.command ?? (about?.type === "commandExecution" ? about.command : undefined);
    if (command != null) {
      lines.push(guttered(command));
    }
    if (about?.type === "fileChange") {
      lines.push(...about.changes.map((change) => guttered(`${change.kind.type} ${change.path}`)));
    }
    if (params.reason) {
      lines.push("The reason that is given:", guttered(params.reason));
    }
    this.note(lines.join("\n"));
  }

  // --- the text
  private showStored(thread: StoredThread): void {
    for (const turn of thread.turns) {
      for (const item of turn.items) {
        this.begin(item);
        this.end(item);
      }
    }
  }

  /** Text of another item begins a paragraph of its own. */
  private add(item: string | undefined, text: string): void {
    const another = item === undefined || item !== this.shown;
    this.text += (another && this.text !== "" ? "\n\n" : "") + text;
    this.shown = item;
    this.changed();
  }

  private note(text: string): void {
    this.add(undefined, text);
  }

  private begin(item: ThreadItem): void {
    switch (item.type) {
      case "userMessage": {
        const parts = item.content.map((part) => (part.type === "text" ? part.text : `[${part.type}]`));
        this.add(item.id, `# ${parts.join("\n")}`);
        break;
      }
      case "commandExecution":
        this.add(item.id, `$ ${item.command.split(LINE_ENDS).join(`\n${BAR}`)}\n`);
        break;
      case "fileChange":
        this.add(item.id, `± ${item.changes.map((change) => onOneLine(change.path)).join(", ")}`);
        break;
    }
  }

  /** What is left to be shown of an item that is over; text that was streamed is there already. */
  private end(item: ThreadItem): void {
    const streamed = this.streamed.has(item.id);
    switch (item.type) {
      case "agentMessage":
        if (!streamed) {
          this.add(item.id, item.text);
        }
        break;
      case "commandExecution": {
        const output = streamed ? "" : (item.aggregatedOutput ?? "");
        const code = item.exitCode == null ? "" : `, exit code ${item.exitCode}`;
        this.add(item.id, `${output}(${item.status}${code})`);
        break;
      }
      case "fileChange":
        this.add(item.id, ` (${item.status})`);
        break;
    }
  }
}

const BAR = "│ ";
const LINE_ENDS = /\r\n|[\n\r\u0085\u2028\u2029\v\f]/;
const MOST_SHOWN = 1500;

function onOneLine(text: string): string {
  return text.split(LINE_ENDS).join("\ufffd");
}

/** Words of others behind a bar in each line, so that no line of theirs can pass for one of ours: all, or both ends. */
function guttered(text: string): string {
  const behindBar = (part: string) =>
    part.split(LINE_ENDS).map((line) => BAR + line.replace(/[\p{Cc}\p{Cf}]/gu, "\ufffd")).join("\n");
  if (text.length <= MOST_SHOWN) {
    return behindBar(text);
  }
  const half = MOST_SHOWN / 2;
  const leftOut = `┆ ${text.length - MOST_SHOWN} characters are left out here`;
  return [behindBar(text.slice(0, half)), leftOut, behindBar(text.slice(-half))].join("\n");
}

/** A file that is added or deleted comes with its text, not with a diff. */
function changeText({ path, kind, diff }: FileUpdateChange): string {
  const mark = kind.type === "add" ? "+" : kind.type === "delete" ? "-" : "";
  const body = mark === "" ? diff : diff.trimEnd().split("\n").map((line) => mark + line).join("\n");
  return `--- ${path}\n+++ ${path}\n${body}`;
}
