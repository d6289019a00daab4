rockspec_format = "3.0"
package = "app-server.nvim"
version = "scm-1"
source = { url = "." }
description = {
  summary = "Threads of a coding agent in buffers of Neovim",
  license = "Apache-2.0",
  labels = { "neovim" },
}
dependencies = { "lua >= 5.1" }
build = {
  type = "builtin",
  modules = {
    ["app_server"] = "lua/app_server/init.lua",
    ["app_server.rpc"] = "lua/app_server/rpc.lua",
    ["app_server.thread"] = "lua/app_server/thread.lua",
    ["app_server.transcript"] = "lua/app_server/transcript.lua",
  },
  copy_directories = { "doc", "plugin" },
}
