local command = vim.api.nvim_create_user_command

command("AppServer", function()
  require("app_server").start()
end, { desc = "Begin a thread in this directory" })

command("AppServerResume", function(options)
  require("app_server").resume(options.args)
end, { nargs = "?", desc = "Go on with a stored thread: one that is chosen, or the one with the id" })

command("AppServerSay", function(options)
  require("app_server").say(options.args)
end, { nargs = "+", desc = "Say something to the agent" })
