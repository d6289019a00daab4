--- The buffer of a thread: text is only ever added at its end.

local M = {}

local Transcript = {}
Transcript.__index = Transcript

function M.open(name)
  local buffer = vim.api.nvim_create_buf(true, true)
  vim.api.nvim_buf_set_name(buffer, name)
  vim.api.nvim_buf_set_option(buffer, "filetype", "markdown")
  vim.api.nvim_buf_set_option(buffer, "modifiable", false)
  return setmetatable({ buffer = buffer, item = nil }, Transcript)
end

--- Text of an item. Text of another item begins a paragraph of its own.
function Transcript:add(item_id, text)
  if not vim.api.nvim_buf_is_loaded(self.buffer) then -- it was closed, or Neovim is being left
    return
  end
  if item_id ~= self.item then
    text = (self.item and "\n\n" or "") .. text
    self.item = item_id
  end
  local buffer = self.buffer
  local last = vim.api.nvim_buf_line_count(buffer) - 1
  local column = #vim.api.nvim_buf_get_lines(buffer, last, last + 1, true)[1]
  vim.api.nvim_buf_set_option(buffer, "modifiable", true)
  vim.api.nvim_buf_set_text(buffer, last, column, last, column, vim.split(text, "\n", { plain = true }))
  vim.api.nvim_buf_set_option(buffer, "modifiable", false)
  for _, window in ipairs(vim.fn.win_findbuf(buffer)) do
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buffer), 0 })
  end
end

--- A paragraph that belongs to no item.
function Transcript:note(text)
  self:add({}, text)
end

function Transcript:text()
  return table.concat(vim.api.nvim_buf_get_lines(self.buffer, 0, -1, true), "\n")
end

return M
