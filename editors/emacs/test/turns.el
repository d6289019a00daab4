;;; turns.el --- Plays app-server.el in a batch Emacs  -*- lexical-binding: t -*-

;;; Commentary:

;; A turn with two approvals, one that is interrupted, and the thread again.  $APP_SERVER is the server, $RESULT the
;; file for what was seen.  Anything unexpected ends Emacs with an error.

;;; Code:

(require 'app-server)
(require 'cl-lib)
(require 'json)

(setq app-server-command (list (getenv "APP_SERVER")))

(defun turns-wait (what holds)
  "Wait until HOLDS returns non-nil; WHAT says what for."
  (with-timeout (60 (error "Never came: %s\n%s" what (buffer-string)))
    (while (not (funcall holds))
      (accept-process-output nil 0.01))))

(defun turns-wait-for (text)
  "Wait until the buffer has TEXT."
  (turns-wait text (lambda () (save-excursion (goto-char (point-min)) (search-forward text nil t)))))

(defun turns-press (key)
  "Do what KEY is bound to in the buffer."
  (call-interactively (key-binding (kbd key))))

(let (seen first second)
  (setq first (app-server))
  (with-current-buffer first
    (app-server-say "please begin")
    (turns-wait-for "Run this command?")
    (turns-press "a")
    (turns-wait-for "Change these files?")
    (turns-press "=")
    (push (cons 'diff (with-current-buffer "*app-server diff*" (buffer-string))) seen)
    (set-buffer first)
    (turns-press "a")
    (turns-wait-for "All done.")
    (turns-wait "the end of the turn" (lambda () (null app-server--turn)))
    (app-server-say "and now?")
    (turns-wait-for "half")
    (turns-press "C-c C-c")
    (turns-wait-for "interrupted")
    (push (cons 'live (buffer-string)) seen)
    (push (cons 'id app-server--thread) seen)
    (app-server-stop))
  (let ((default-directory (file-name-as-directory (getenv "HOME"))))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt titles &rest _) (push (cons 'offered (caar titles)) seen) (caar titles))))
      (setq second (call-interactively #'app-server-resume))))
  (with-current-buffer second
    (push (cons 'again (buffer-string)) seen)
    (app-server-say "once more")
    (turns-wait-for "no more credit")
    (let ((process (jsonrpc--process app-server--connection)))
      (app-server-stop)
      (turns-wait "the end of the server" (lambda () (not (process-live-p process))))
      (push (cons 'exit (process-exit-status process)) seen)))
  (with-temp-file (getenv "RESULT")
    (insert (json-encode seen))))

;;; turns.el ends here
