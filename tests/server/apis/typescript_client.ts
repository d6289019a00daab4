// A client of codex as its types are used: messages from `types`, shapes of threads from `types/v2`. It is compiled, not run.

import type {
  ClientNotification,
  ClientRequest,
  InitializeParams,
  InitializeResponse,
  RequestId,
  ServerNotification,
  ServerRequest,
  v2,
} from "./types";
import type { ReasoningEffort } from "./types/ReasoningEffort";
import type { JsonValue } from "./types/serde_json/JsonValue";
import type { ThreadItem } from "./types/v2";
import type { ThreadStartResponse } from "./types/v2/ThreadStartResponse";

const hello: InitializeParams = {
  clientInfo: { name: "client", title: null, version: "1" },
  capabilities: { experimentalApi: true },
};

export const effort: ReasoningEffort = "xhigh";

export function requests(): ClientRequest[] {
  const config: Record<string, JsonValue> = { "features.goals": true };
  const input: v2.UserInput[] = [
    { type: "text", text: "hello", text_elements: [] },
    { type: "image", url: "data:," },
  ];
  return [
    { id: 1, method: "initialize", params: hello },
    { id: "2", method: "thread/start", params: { cwd: "/w", config } },
    { id: 3, method: "turn/start", params: { threadId: "t", input } },
    { id: 4, method: "sendUserMessage", params: { conversationId: "c", items: [] } },
  ];
}

export const ready: ClientNotification = { method: "initialized" };

export function opened(response: ThreadStartResponse, server: InitializeResponse): string[] {
  const thread: v2.Thread = response.thread;
  const parent: string | null = thread.forkedFromId;
  const home: string = server.codexHome;
  return [parent ?? home, thread.gitInfo?.branch ?? "", response.reasoningEffort ?? ""];
}

export function heard(message: ServerNotification): string {
  switch (message.method) {
    case "item/agentMessage/delta":
      return message.params.delta;
    case "item/completed":
      return shown(message.params.item);
    case "turn/completed":
      return message.params.turn.error?.message ?? message.params.turn.status;
    case "thread/tokenUsage/updated":
      return String(message.params.tokenUsage.total.totalTokens);
    default:
      return message.method;
  }
}

function shown(item: ThreadItem): string {
  switch (item.type) {
    case "commandExecution": {
      const status: number | null = item.exitCode;
      const output: string | null = item.aggregatedOutput;
      return `${item.command} ${status} ${output} ${item.commandActions.length}`;
    }
    case "fileChange":
      return item.changes.map((change) => `${change.kind.type} ${change.path}`).join();
    case "mcpToolCall":
      return item.error === null ? JSON.stringify(item.arguments) : item.error.message;
    default:
      return item.id;
  }
}

export function asked(request: ServerRequest): [RequestId, string | null] {
  switch (request.method) {
    case "item/commandExecution/requestApproval":
      return [request.id, request.params.reason ?? null];
    case "item/fileChange/requestApproval":
      return [request.id, request.params.itemId];
    case "execCommandApproval":
      return [request.id, request.params.conversationId];
    default:
      return [request.id, null];
  }
}
