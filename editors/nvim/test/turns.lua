-- Plays the plugin in a headless Neovim: a turn with two approvals, one that is interrupted, and the thread again.
-- $APP_SERVER is the server, $RESULT the file for what was seen. Anything unexpected ends Neovim with an error.

local app = require("app_server")
app.setup({ command = { vim.env.APP_SERVER } })

local function wait(what, holds)
  if not vim.wait(60000, holds, 10) then
    error("never came: " .. what .. "\n" .. app.current.view:text())
  end
end

local function says(text)
  return function()
    return app.current.view:text():find(text, 1, true) ~= nil
  end
end

local function press(key)
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(key, true, false, true), "x", false)
end

local function opened()
  return app.current.id ~= nil
end

local function idle()
  return app.current.turn == nil
end

local function play()
  local seen = {}
  vim.cmd("AppServer")
  vim.cmd("AppServerSay please begin") -- before the server has answered
  wait("the question about the command", says("Run this command?"))
  press("a")
  wait("the question about the patch", says("Change these files?"))
  press("=")
  seen.diff = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), "\n")
  vim.cmd("close")
  press("a")
  wait("the end of the turn", says("All done."))
  wait("the end of the turn", idle)
  vim.cmd("AppServerSay and now?")
  wait("half an answer", says("half"))
  press("<C-c>")
  wait("the end of the turn", says("_interrupted_"))
  seen.live, seen.id = app.current.view:text(), app.current.id
  vim.ui.select = function(stored, options, choose)
    seen.offered = options.format_item(stored[1])
    choose(stored[1])
  end
  vim.cmd("AppServerResume")
  wait("the stored thread", opened)
  seen.again = app.current.view:text()
  vim.cmd("AppServerSay once more")
  wait("an error", says("no more credit"))
  vim.cmd("AppServerResume " .. seen.id)
  wait("the stored thread", opened)
  local stopped = app.current.client.job
  app.current:stop()
  seen.exit = vim.fn.jobwait({ stopped }, 60000)[1]
  vim.cmd("AppServer") -- runs while Neovim is left
  wait("a thread", opened)
  vim.fn.writefile({ vim.json.encode(seen) }, vim.env.RESULT)
end

local fine, problem = pcall(play)
if not fine then
  io.stderr:write(tostring(problem) .. "\n")
end
vim.cmd(fine and "qall!" or "cquit 1")
