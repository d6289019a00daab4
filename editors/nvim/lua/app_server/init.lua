--- `require("app_server").setup({ command = { "app-server" } })`: the commands and keys are in the README.

local thread = require("app_server.thread")

local M = { command = { "app-server" }, current = nil }

function M.setup(options)
  M.command = (options or {}).command or M.command
end

local function open(resume)
  if M.current then
    M.current:stop()
  end
  M.current = thread.open(M.command, vim.fn.getcwd(), resume)
  vim.api.nvim_win_set_buf(0, M.current.view.buffer)
  local keys = {
    a = function()
      M.current:decide("accept")
    end,
    s = function()
      M.current:decide("acceptForSession")
    end,
    d = function()
      M.current:decide("decline")
    end,
    c = function()
      M.current:decide("cancel")
    end,
    ["="] = function()
      M.current:show_diff()
    end,
    ["<C-c>"] = function()
      M.current:interrupt()
    end,
    ["<CR>"] = function()
      vim.ui.input({ prompt = "Say: " }, M.say)
    end,
  }
  for key, action in pairs(keys) do
    vim.keymap.set("n", key, action, { buffer = M.current.view.buffer, nowait = true })
  end
  return M.current
end

function M.start()
  return open(nil)
end

function M.resume(id)
  return open(id)
end

function M.say(text)
  if text and text ~= "" and M.current then
    M.current:say(text)
  end
end

return M
