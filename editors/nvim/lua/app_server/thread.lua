--- One thread: what the server tells of it goes to the transcript, what the user decides goes to the server.

local rpc = require("app_server.rpc")
local transcript = require("app_server.transcript")

local M = {}

local Thread = {}
Thread.__index = Thread

local MOST_LISTED = 50 -- stored threads that are offered

local KEYS = "a: yes, s: yes for this session, d: no and go on, c: no and stop, =: show the diff"

local function words(text)
  return { { type = "text", text = text } }
end

--- Starts a server and opens a thread in it: the stored one with the id `resume` ("": the user chooses), or a new one.
function M.open(command, cwd, resume)
  local self = setmetatable({ items = {}, streamed = {}, questions = {}, unsaid = {}, diff = "" }, Thread)
  self.view = transcript.open("app-server://" .. (resume or ("new-" .. vim.loop.hrtime())))
  self.client = rpc.start(command, {
    notification = function(method, params)
      self:_notified(method, params)
    end,
    request = function(id, method, params)
      self:_asked(id, method, params)
    end,
    exit = function(code)
      self.view:note("_The server has ended (" .. code .. ")._")
    end,
  })
  local info = { name = "app-server.nvim", version = "1.0.0" }
  self.client:request("initialize", { clientInfo = info, capabilities = vim.empty_dict() }, function(problem)
    if self:_failed(problem) then
      return
    end
    self.client:notify("initialized")
    if resume == "" then
      self:_choose()
    else
      self:_request_thread(resume and "thread/resume" or "thread/start", { cwd = cwd, threadId = resume })
    end
  end)
  return self
end

function Thread:_request_thread(method, params)
  self.client:request(method, params, function(problem, result)
    if not self:_failed(problem) then
      self:_opened(result.thread)
    end
  end)
end

--- Lets the user choose among the stored threads, the latest first.
function Thread:_choose()
  self.client:request("thread/list", { limit = MOST_LISTED, sortKey = "updated_at" }, function(problem, result)
    if self:_failed(problem) then
      return
    end
    local function title(stored)
      return (stored.name or stored.preview):gsub("%s+", " ")
    end
    vim.ui.select(result.data, { prompt = "Go on with", format_item = title }, function(chosen)
      if chosen then
        self:_request_thread("thread/resume", { threadId = chosen.id })
      else
        self:stop()
      end
    end)
  end)
end

function Thread:_opened(thread)
  self.id = thread.id
  local unsaid = self.unsaid
  self.unsaid = {}
  for _, turn in ipairs(thread.turns or {}) do
    for _, item in ipairs(turn.items) do
      self:_show_begin(item)
      self:_show_end(item)
    end
  end
  for _, text in ipairs(unsaid) do
    self:say(text)
  end
end

function Thread:_failed(problem)
  if problem then
    self.view:note("_" .. problem.message .. "_")
  end
  return problem ~= nil
end

-- What the user does -----------------------------------------------------------------------------------

--- Begins a turn; where one runs, the words join it.
function Thread:say(text)
  if self.id == nil then
    table.insert(self.unsaid, text) -- said once the thread is open
    return
  end
  self.client:request("turn/start", { threadId = self.id, input = words(text) }, function(problem, result)
    if not self:_failed(problem) then
      self.turn = result.turn.id
    end
  end)
end

function Thread:interrupt()
  if self.turn then
    local params = { threadId = self.id, turnId = self.turn }
    self.client:request("turn/interrupt", params, function(problem)
      self:_failed(problem)
    end)
  end
end

--- Answers the oldest question that is open: "accept", "acceptForSession", "decline" or "cancel".
function Thread:decide(decision)
  local question = table.remove(self.questions, 1)
  if question then
    self.client:reply(question.id, { decision = decision })
    self.view:note("→ " .. decision)
  end
end

--- A file that is added or deleted comes with its text, not with a diff.
local function change_text(change)
  local mark = ({ add = "+", delete = "-" })[change.kind.type]
  local body = change.diff
  if mark then
    body = mark .. body:gsub("\n$", ""):gsub("\n", "\n" .. mark)
  end
  return "--- " .. change.path .. "\n+++ " .. change.path .. "\n" .. body
end

--- Shows what is asked about, or else what the turn has changed, in a window of its own; returns its buffer.
function Thread:show_diff()
  local question = self.questions[1]
  local item = question and self.items[question.item]
  local text = self.diff
  if item and item.changes then
    local parts = {}
    for _, change in ipairs(item.changes) do
      parts[#parts + 1] = change_text(change)
    end
    text = table.concat(parts, "\n")
  end
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, vim.split(text, "\n", { plain = true }))
  vim.api.nvim_buf_set_option(buffer, "filetype", "diff")
  vim.api.nvim_buf_set_option(buffer, "modifiable", false)
  vim.cmd("split")
  vim.api.nvim_win_set_buf(0, buffer)
  return buffer
end

function Thread:stop()
  self.client:stop()
end

-- What the server says ---------------------------------------------------------------------------------

local notified = {}

function Thread:_notified(method, params)
  local handler = notified[method]
  if handler and (params.threadId == nil or params.threadId == self.id) then
    handler(self, params)
  end
end

notified["turn/started"] = function(self, params)
  self.turn = params.turn.id
  self.diff = ""
end

notified["turn/completed"] = function(self, params)
  self.turn = nil
  local turn = params.turn
  if turn.status ~= "completed" then
    self.view:note("_" .. turn.status .. (turn.error and (": " .. turn.error.message) or "") .. "_")
  end
end

notified["error"] = function(self, params)
  self.view:note("_" .. (params.willRetry and "retrying: " or "") .. params.error.message .. "_")
end

notified["turn/diff/updated"] = function(self, params)
  self.diff = params.diff
end

notified["item/started"] = function(self, params)
  self.items[params.item.id] = params.item
  self:_show_begin(params.item)
end

notified["item/agentMessage/delta"] = function(self, params)
  self.streamed[params.itemId] = true
  self.view:add(params.itemId, params.delta)
end

notified["item/commandExecution/outputDelta"] = notified["item/agentMessage/delta"]

notified["item/completed"] = function(self, params)
  self.items[params.item.id] = params.item
  self:_show_end(params.item)
end

notified["serverRequest/resolved"] = function(self, params)
  self.questions = vim.tbl_filter(function(question)
    return question.id ~= params.requestId
  end, self.questions)
end

local MOST_SHOWN = 1500 -- characters of what is asked about; the beginning and the end of more

local function guttered_lines(text)
  return "│ " .. text:gsub("\n", "\n│ ")
end

--- The text with "\n" at the end of each line, whatever ends lines elsewhere, and without control characters.
local function plain_lines(text)
  text = text:gsub("\r\n?", "\n"):gsub("[\11\12]", "\n")
  for _, separator in ipairs({ "\226\128\168", "\226\128\169", "\194\133" }) do
    text = text:gsub(separator, "\n")
  end
  return (text:gsub("[%z\1-\8\11-\31\127]", "\239\191\189"))
end

local function on_one_line(text)
  return (plain_lines(text):gsub("\n", "\239\191\189"))
end

--- Words of others behind a bar in each line, so that no line of theirs can pass for one of ours.
local function guttered(text)
  text = plain_lines(text)
  if #text > MOST_SHOWN then
    local half = math.floor(MOST_SHOWN / 2)
    local first = vim.fn.strcharpart(text, 0, half)
    local last = vim.fn.strcharpart(text, vim.fn.strchars(text) - half)
    local left_out = vim.fn.strchars(text) - 2 * half
    return guttered_lines(first) .. "\n┆ " .. left_out .. " characters are left out here\n" .. guttered_lines(last)
  end
  return guttered_lines(text)
end

local APPROVALS = {
  ["item/commandExecution/requestApproval"] = "Run this command?",
  ["item/fileChange/requestApproval"] = "Change these files?",
}

function Thread:_asked(id, method, params)
  local question = APPROVALS[method]
  if question == nil then
    self.client:refuse(id, method .. " is not supported by this client")
    return
  end
  table.insert(self.questions, { id = id, item = params.itemId })
  self.view:note(table.concat(self:_question(question, params), "\n"))
end

--- The lines of a question: ours, and what others say behind a bar.
function Thread:_question(question, params)
  local item = self.items[params.itemId] or {}
  local lines = { "**" .. question .. "**" }
  local command = params.command or item.command
  if command then
    lines[#lines + 1] = guttered(command)
  end
  for _, change in ipairs(item.changes or {}) do
    lines[#lines + 1] = guttered(change.kind.type .. " " .. change.path)
  end
  if params.reason then
    lines[#lines + 1] = "The reason that is given:"
    lines[#lines + 1] = guttered(params.reason)
  end
  lines[#lines + 1] = KEYS
  return lines
end

-- Items ------------------------------------------------------------------------------------------------

local function user_words(item)
  local texts = {}
  for _, part in ipairs(item.content) do
    texts[#texts + 1] = part.text or ("[" .. part.type .. "]")
  end
  return table.concat(texts, "\n")
end

function Thread:_show_begin(item)
  if item.type == "userMessage" then
    self.view:add(item.id, "# " .. user_words(item))
  elseif item.type == "commandExecution" then
    local command = plain_lines(item.command):gsub("\n", "\n│ ")
    self.view:add(item.id, "$ " .. command .. "\n")
  elseif item.type == "fileChange" then
    local paths = {}
    for _, change in ipairs(item.changes) do
      paths[#paths + 1] = on_one_line(change.path)
    end
    self.view:add(item.id, "± " .. table.concat(paths, ", "))
  end
end

--- What is left to be shown of an item that is over; text that was streamed is there already.
function Thread:_show_end(item)
  local streamed = self.streamed[item.id]
  if item.type == "agentMessage" and not streamed then
    self.view:add(item.id, item.text)
  elseif item.type == "commandExecution" then
    local output = not streamed and item.aggregatedOutput or ""
    local code = item.exitCode and (", exit code " .. item.exitCode) or ""
    self.view:add(item.id, output .. "(" .. item.status .. code .. ")")
  elseif item.type == "fileChange" then
    self.view:add(item.id, " (" .. item.status .. ")")
  end
end

return M
