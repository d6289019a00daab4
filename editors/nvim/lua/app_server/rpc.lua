--- JSON-RPC with `app-server`: one process, one JSON object per line on its stdin and stdout.

local M = {}

local Client = {}
Client.__index = Client

--- `handlers.notification(method, params)`, `handlers.request(id, method, params)`, `handlers.exit(code)`.
--- A request of the server is answered later, by `client:reply`.
function M.start(command, handlers)
  local self = setmetatable({ handlers = handlers, waiting = {}, next_id = 0, partial = "" }, Client)
  self.job = vim.fn.jobstart(command, {
    on_stdout = function(_, pieces)
      self:_receive(pieces)
    end,
    on_exit = function(_, code)
      self.job = nil
      handlers.exit(code)
    end,
  })
  if self.job <= 0 then
    error("cannot start " .. table.concat(command, " "))
  end
  return self
end

--- `done(error, result)`; the error has `code` and `message`.
function Client:request(method, params, done)
  self.next_id = self.next_id + 1
  self.waiting[self.next_id] = done
  self:_send({ id = self.next_id, method = method, params = params })
end

function Client:notify(method)
  self:_send({ method = method })
end

function Client:reply(id, result)
  self:_send({ id = id, result = result })
end

function Client:refuse(id, message)
  self:_send({ id = id, error = { code = -32601, message = message } })
end

function Client:stop()
  if self.job then
    vim.fn.chanclose(self.job, "stdin") -- the server ends by itself, and its commands with it
  end
end

function Client:_send(message)
  if self.job then
    vim.fn.chansend(self.job, vim.json.encode(message) .. "\n")
  end
end

--- The first piece continues the last one of the call before; the last one is no whole line yet.
function Client:_receive(pieces)
  for index, piece in ipairs(pieces) do
    self.partial = self.partial .. piece
    if index < #pieces then
      local line = self.partial
      self.partial = ""
      if line ~= "" then
        self:_dispatch(vim.json.decode(line, { luanil = { object = true, array = true } }))
      end
    end
  end
end

function Client:_dispatch(message)
  if message.method and message.id ~= nil then
    self.handlers.request(message.id, message.method, message.params or {})
  elseif message.method then
    self.handlers.notification(message.method, message.params or {})
  else
    local done = self.waiting[message.id]
    self.waiting[message.id] = nil
    if done then
      done(message.error, message.result)
    end
  end
end

return M
