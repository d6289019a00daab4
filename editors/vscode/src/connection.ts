// JSON-RPC with `app-server`: one process, one JSON object per line on its stdin and stdout.

import { ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { ClientRequest } from "./protocol/v2/ClientRequest";
import type { InitializeResponse } from "./protocol/v2/InitializeResponse";
import type { JSONRPCErrorError } from "./protocol/v2/JSONRPCErrorError";
import type { RequestId } from "./protocol/v2/RequestId";
import type { ServerNotification } from "./protocol/v2/ServerNotification";
import type { ServerRequest } from "./protocol/v2/ServerRequest";
import type { ThreadListResponse } from "./protocol/v2/ThreadListResponse";
import type { ThreadResumeResponse } from "./protocol/v2/ThreadResumeResponse";
import type { ThreadStartResponse } from "./protocol/v2/ThreadStartResponse";
import type { TurnInterruptResponse } from "./protocol/v2/TurnInterruptResponse";
import type { TurnStartResponse } from "./protocol/v2/TurnStartResponse";

type Params<M> = Extract<ClientRequest, { method: M }>["params"];

/** The requests that are used here, with what answers them. */
interface Responses {
  initialize: InitializeResponse;
  "thread/list": ThreadListResponse;
  "thread/start": ThreadStartResponse;
  "thread/resume": ThreadResumeResponse;
  "turn/start": TurnStartResponse;
  "turn/interrupt": TurnInterruptResponse;
}

export interface Listener {
  notified(notification: ServerNotification): void;
  /** Answered later, by `reply` or `refuse`. */
  asked(request: ServerRequest): void;
  ended(code: number | null): void;
}

interface Waiting {
  resolve(result: never): void;
  reject(error: Error): void;
}

export class Connection {
  private readonly process: ChildProcessWithoutNullStreams;
  private readonly waiting = new Map<RequestId, Waiting>();
  private nextId = 0;

  constructor(command: readonly string[], cwd: string, private readonly listener: Listener) {
    this.process = spawn(command[0], command.slice(1), { cwd });
    this.process.stderr.resume();
    this.process.stdin.on("error", () => undefined); // it has ended; `close` says so
    createInterface({ input: this.process.stdout }).on("line", (line) => this.receive(line));
    this.process.on("error", (error) => this.end(null, error));
    this.process.on("close", (code) => this.end(code, new Error("the server has ended")));
  }

  request<M extends keyof Responses>(method: M, params: Params<M>): Promise<Responses[M]> {
    const id = ++this.nextId;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }

  initialized(): void {
    this.send({ method: "initialized" });
  }

  reply(id: RequestId, result: unknown): void {
    this.send({ id, result });
  }

  refuse(id: RequestId, message: string): void {
    this.send({ id, error: { code: -32601, message } });
  }

  /** The server ends by itself, and its commands with it. */
  stop(): void {
    this.process.stdin.end();
  }

  private send(message: unknown): void {
    this.process.stdin.write(JSON.stringify(message) + "\n");
  }

  private receive(line: string): void {
    const message = JSON.parse(line);
    if (message.method !== undefined && message.id !== undefined) {
      this.listener.asked(message);
    } else if (message.method !== undefined) {
      this.listener.notified(message);
    } else {
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      const error: JSONRPCErrorError | undefined = message.error;
      if (error !== undefined) {
        waiting?.reject(new Error(error.message));
      } else {
        waiting?.resolve(message.result as never);
      }
    }
  }

  private end(code: number | null, error: Error): void {
    for (const waiting of this.waiting.values()) {
      waiting.reject(error);
    }
    this.waiting.clear();
    this.listener.ended(code);
  }
}
