;;; app-server.el --- Threads of a coding agent in buffers  -*- lexical-binding: t -*-

;; Version: 1.0.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, processes
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; `app-server' begins a thread in a buffer, `app-server-resume' goes on with a stored one.  The manual is
;; app-server.texi; `C-h m' in the buffer of a thread lists its keys.

;;; Code:

(require 'cl-lib)
(require 'diff-mode)
(require 'jsonrpc)
(require 'subr-x)

(defgroup app-server nil "A coding agent behind JSON-RPC." :group 'tools)

(defcustom app-server-command '("app-server")
  "The program, and its arguments."
  :type '(repeat string))

(defcustom app-server-timeout 60
  "Seconds that opening a thread may take."
  :type 'natnum)

(defcustom app-server-offered 50
  "Stored threads that `app-server-resume' offers, the latest first."
  :type 'natnum)

;;; The connection

(defclass app-server-connection (jsonrpc-process-connection)
  ((buffer :initarg :buffer :accessor app-server-connection-buffer))
  :documentation "A process with one JSON object per line, where jsonrpc.el expects headers.")

(cl-defmethod initialize-instance :after ((connection app-server-connection) &rest _slots)
  "Read lines from the process of CONNECTION."
  (set-process-filter (jsonrpc--process connection) #'app-server--receive))

(cl-defmethod jsonrpc-connection-send ((connection app-server-connection)
                                       &rest message &key method &allow-other-keys)
  "Send MESSAGE over CONNECTION as a line."
  (when (and method (symbolp method))
    (setq message (plist-put (copy-sequence message) :method
                             (string-remove-prefix ":" (symbol-name method)))))
  (process-send-string (jsonrpc--process connection)
                       (concat (json-serialize message :null-object nil :false-object :json-false)
                               "\n")))

(defun app-server--receive (process text)
  "Dispatch the lines that TEXT completes, of PROCESS."
  (let ((lines (split-string (concat (process-get process 'partial) text) "\n")))
    (process-put process 'partial (car (last lines)))
    (dolist (line (butlast lines))
      (unless (string-empty-p line)
        (app-server--dispatch
         (process-get process 'jsonrpc-connection)
         (json-parse-string line :object-type 'plist :null-object nil :false-object :json-false))))))

(defun app-server--dispatch (connection message)
  "Dispatch MESSAGE, which came over CONNECTION.
Requests of the server do not go through jsonrpc.el, which would answer
them at once."
  (let ((id (plist-get message :id)) (method (plist-get message :method)))
    (if (and id method)
        (app-server--asked connection id method (plist-get message :params))
      (jsonrpc-connection-receive
       connection
       (cl-loop for key in '(:id :method :params :result :error)
                when (plist-member message key) append (list key (plist-get message key)))))))

(defun app-server--connect (buffer)
  "Start a server whose thread is shown in BUFFER."
  (let* ((name (generate-new-buffer-name "app-server"))
         (stderr (get-buffer-create (format "*%s stderr*" name))))
    (make-instance
     'app-server-connection
     :name name :buffer buffer
     :notification-dispatcher #'app-server--notified
     :on-shutdown (lambda (_) (app-server--note buffer "/The server has ended./"))
     :process (lambda ()
                (prog1 (make-process :name name :command app-server-command :stderr stderr
                                     :connection-type 'pipe :coding 'utf-8-unix :noquery t)
                  (set-process-query-on-exit-flag (get-buffer-process stderr) nil))))))

;;; The buffer of a thread

(defvar-local app-server--connection nil)
(defvar-local app-server--thread nil "The id of the thread.")
(defvar-local app-server--turn nil "The id of the turn that runs.")
(defvar-local app-server--questions nil "Questions that are open, oldest first: (ID . ITEM-ID).")
(defvar-local app-server--items nil "Items by their ids, as they were told last.")
(defvar-local app-server--streamed nil "Ids of items whose text came in pieces.")
(defvar-local app-server--shown nil "The id of the item that the buffer ends with.")
(defvar-local app-server--diff "" "What the turn has changed.")

(defvar app-server-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "a" #'app-server-accept)
    (define-key map "s" #'app-server-accept-for-session)
    (define-key map "d" #'app-server-decline)
    (define-key map "c" #'app-server-cancel)
    (define-key map "=" #'app-server-show-diff)
    (define-key map (kbd "C-c C-c") #'app-server-interrupt)
    (define-key map (kbd "RET") #'app-server-say)
    map))

(define-derived-mode app-server-mode special-mode "App-Server"
  "The thread of a coding agent."
  (setq-local app-server--items (make-hash-table :test #'equal)
              app-server--streamed (make-hash-table :test #'equal)
              truncate-lines nil))

(defun app-server--add (buffer item text)
  "Add TEXT of the item with the id ITEM at the end of BUFFER.
Text of another item begins a paragraph of its own."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t) (at-end (eobp)))
        (save-excursion
          (goto-char (point-max))
          (unless (equal item app-server--shown)
            (when app-server--shown (insert "\n\n"))
            (setq app-server--shown item))
          (insert text))
        (when at-end (goto-char (point-max)))))))

(defun app-server--note (buffer text)
  "Add TEXT to BUFFER as a paragraph that belongs to no item."
  (app-server--add buffer (cons 'note text) text))

;;; What the user does

(defun app-server--open (method params &optional choose)
  "Open a thread by METHOD with PARAMS, in a buffer of its own.
With CHOOSE the user is asked for the stored thread.  Return the buffer."
  (let* ((buffer (generate-new-buffer "*app-server*"))
         (connection (app-server--connect buffer)))
    (with-current-buffer buffer
      (app-server-mode)
      (setq app-server--connection connection)
      (add-hook 'kill-buffer-hook #'app-server-stop nil t)
      (jsonrpc-request connection :initialize
                       (list :clientInfo '(:name "app-server.el" :version "1.0.0")
                             :capabilities (make-hash-table))
                       :timeout app-server-timeout)
      (jsonrpc-notify connection :initialized (make-hash-table))
      (when choose
        (setq params (list :threadId (app-server--chosen connection))))
      (let ((thread (plist-get (jsonrpc-request connection method params :timeout app-server-timeout)
                               :thread)))
        (setq app-server--thread (plist-get thread :id))
        (cl-loop for turn across (plist-get thread :turns) do
                 (cl-loop for item across (plist-get turn :items) do
                          (app-server--begin buffer item)
                          (app-server--end buffer item)))))
    (pop-to-buffer buffer)))

(defun app-server--chosen (connection)
  "Let the user choose a stored thread behind CONNECTION; return its id."
  (let* ((params (list :limit app-server-offered :sortKey "updated_at"))
         (listed (jsonrpc-request connection :thread/list params :timeout app-server-timeout))
         (titles (cl-loop for each across (plist-get listed :data) for number from 1
                          collect (cons (format "%d: %s" number
                                                (or (plist-get each :name) (plist-get each :preview)))
                                        (plist-get each :id)))))
    (unless titles (user-error "There is no stored thread"))
    (cdr (assoc (completing-read "Go on with: " titles nil t) titles))))

;;;###autoload
(defun app-server ()
  "Begin a thread in the current directory."
  (interactive)
  (app-server--open :thread/start (list :cwd (expand-file-name default-directory))))

;;;###autoload
(defun app-server-resume (&optional id)
  "Go on with the stored thread ID; without one the user chooses."
  (interactive)
  (app-server--open :thread/resume (list :threadId id) (null id)))

(defun app-server-say (text)
  "Say TEXT: begin a turn, or join the one that runs."
  (interactive "sSay: ")
  (let ((buffer (current-buffer)))
    (jsonrpc-async-request
     app-server--connection :turn/start
     (list :threadId app-server--thread :input (vector (list :type "text" :text text)))
     :success-fn #'ignore
     :error-fn (lambda (problem) (app-server--note buffer (plist-get problem :message))))))

(defun app-server-interrupt ()
  "End the turn that runs."
  (interactive)
  (when app-server--turn
    (jsonrpc-async-request app-server--connection :turn/interrupt
                           (list :threadId app-server--thread :turnId app-server--turn)
                           :success-fn #'ignore :error-fn #'ignore)))

(defun app-server--decide (decision)
  "Answer the oldest question that is open with DECISION."
  (let ((question (or (pop app-server--questions) (user-error "Nothing is asked"))))
    (jsonrpc-connection-send app-server--connection :id (car question) :result (list :decision decision))
    (app-server--note (current-buffer) (concat "→ " decision))))

(defun app-server-accept ()
  "Yes."
  (interactive)
  (app-server--decide "accept"))

(defun app-server-accept-for-session ()
  "Yes, and do not ask about the same again in this session."
  (interactive)
  (app-server--decide "acceptForSession"))

(defun app-server-decline ()
  "No, and the turn goes on."
  (interactive)
  (app-server--decide "decline"))

(defun app-server-cancel ()
  "No, and the turn ends."
  (interactive)
  (app-server--decide "cancel"))

(defun app-server--change-text (change)
  "CHANGE of a file as a diff.
A file that is added or deleted comes with its text, not with a diff."
  (let ((path (plist-get change :path)) (body (plist-get change :diff))
        (mark (pcase (plist-get (plist-get change :kind) :type) ("add" "+") ("delete" "-"))))
    (when mark
      (setq body (mapconcat (lambda (line) (concat mark line)) (split-string (string-trim-right body) "\n")
                            "\n")))
    (format "--- %s\n+++ %s\n%s" path path body)))

(defun app-server-show-diff ()
  "Show what is asked about, or else what the turn has changed."
  (interactive)
  (let* ((item (gethash (cdar app-server--questions) app-server--items))
         (changes (plist-get item :changes))
         (text (if changes
                   (mapconcat #'app-server--change-text changes "\n")
                 app-server--diff)))
    (with-current-buffer (get-buffer-create "*app-server diff*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert text))
      (diff-mode)
      (setq buffer-read-only t)
      (pop-to-buffer (current-buffer)))))

(defun app-server-stop ()
  "Close the connection; the server ends by itself, and its commands with it."
  (when (and app-server--connection (jsonrpc-running-p app-server--connection))
    (process-send-eof (jsonrpc--process app-server--connection))))

;;; What the server says

(defun app-server--notified (connection method params)
  "Show what METHOD with PARAMS tells, which came over CONNECTION."
  (let ((buffer (app-server-connection-buffer connection)))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (app-server--tell buffer (symbol-name method) params)))))

(defun app-server--tell (buffer method params)
  "Show in BUFFER what METHOD with PARAMS tells."
  (let ((item (plist-get params :item)) (id (plist-get params :itemId)))
    (pcase method
      ("turn/started" (setq app-server--turn (plist-get (plist-get params :turn) :id)
                            app-server--diff ""))
      ("turn/completed"
       (setq app-server--turn nil)
       (let* ((turn (plist-get params :turn)) (status (plist-get turn :status)))
         (unless (equal status "completed")
           (app-server--note
            buffer (string-join (delq nil (list status (plist-get (plist-get turn :error) :message))) ": ")))))
      ("error"
       (app-server--note buffer (concat (when (eq (plist-get params :willRetry) t) "retrying: ")
                                        (plist-get (plist-get params :error) :message))))
      ("turn/diff/updated" (setq app-server--diff (plist-get params :diff)))
      ("item/started"
       (puthash (plist-get item :id) item app-server--items)
       (app-server--begin buffer item))
      ((or "item/agentMessage/delta" "item/commandExecution/outputDelta")
       (puthash id t app-server--streamed)
       (app-server--add buffer id (plist-get params :delta)))
      ("item/completed"
       (puthash (plist-get item :id) item app-server--items)
       (app-server--end buffer item))
      ("serverRequest/resolved"
       (setq app-server--questions
             (assoc-delete-all (plist-get params :requestId) app-server--questions))))))

(defun app-server--asked (connection id method params)
  "Put the question of METHOD with PARAMS to the user.
It came over CONNECTION under ID."
  (let ((buffer (app-server-connection-buffer connection))
        (question (pcase method
                    ("item/commandExecution/requestApproval" "Run this command?")
                    ("item/fileChange/requestApproval" "Change these files?"))))
    (if (not (and question (buffer-live-p buffer)))
        (jsonrpc-connection-send connection :id id
                                 :error (list :code -32601 :message (concat method " is not supported")))
      (with-current-buffer buffer
        (setq app-server--questions
              (append app-server--questions (list (cons id (plist-get params :itemId)))))
        (app-server--note
         buffer (concat (app-server--question question params)
                        "\na: yes, s: yes for this session, d: no and go on, c: no and stop, =: diff"))))))

(defconst app-server--line-ends "\r\n\\|[\n\r\f\v\u0085\u2028\u2029]"
  "What begins a new line on a screen.")

(defconst app-server--most-shown 1500
  "Characters of what is asked about that are shown.
Of more the beginning and the end are.")

(defun app-server--on-one-line (text)
  "TEXT of others as one line."
  (replace-regexp-in-string app-server--line-ends "\xfffd" text))

(defun app-server--behind-bar (text)
  "TEXT of others with a bar before each line.
No line of it can pass for one of ours."
  (mapconcat (lambda (line) (concat "│ " (replace-regexp-in-string "[[:cntrl:]]" "\xfffd" line)))
             (split-string text app-server--line-ends) "\n"))

(defun app-server--guttered (text)
  "TEXT of others behind a bar: all of it, or its beginning and its end."
  (let ((half (/ app-server--most-shown 2)) (more (- (length text) app-server--most-shown)))
    (if (<= more 0)
        (app-server--behind-bar text)
      (concat (app-server--behind-bar (substring text 0 half))
              (format "\n┆ %d characters are left out here\n" more)
              (app-server--behind-bar (substring text (- half)))))))

(defun app-server--question (question params)
  "QUESTION with what it is about by PARAMS.
The last lines are enough to answer it."
  (let* ((item (gethash (plist-get params :itemId) app-server--items))
         (command (or (plist-get params :command) (plist-get item :command)))
         (reason (plist-get params :reason)))
    (string-join
     (delq nil
           (append (list question (when command (app-server--guttered command)))
                   (mapcar (lambda (change)
                             (app-server--guttered (concat (plist-get (plist-get change :kind) :type) " "
                                                           (plist-get change :path))))
                           (plist-get item :changes))
                   (when reason (list "The reason that is given:" (app-server--guttered reason)))))
     "\n")))

(defun app-server--begin (buffer item)
  "Show in BUFFER that ITEM has begun."
  (let ((id (plist-get item :id)))
    (pcase (plist-get item :type)
      ("userMessage"
       (app-server--add buffer id
                        (concat "> " (mapconcat (lambda (part) (or (plist-get part :text)
                                                                   (format "[%s]" (plist-get part :type))))
                                                (plist-get item :content) "\n"))))
      ("commandExecution" (app-server--add buffer id (format "$ %s\n" (replace-regexp-in-string app-server--line-ends "\n│ " (plist-get item :command)))))
      ("fileChange"
       (app-server--add buffer id
                        (concat "± " (mapconcat (lambda (change) (app-server--on-one-line (plist-get change :path)))
                                                (plist-get item :changes) ", ")))))))

(defun app-server--end (buffer item)
  "Show in BUFFER what is left of ITEM, which is over.
Text that came in pieces is there already."
  (let* ((id (plist-get item :id)) (code (plist-get item :exitCode))
         (streamed (gethash id (buffer-local-value 'app-server--streamed buffer))))
    (pcase (plist-get item :type)
      ("agentMessage" (unless streamed (app-server--add buffer id (plist-get item :text))))
      ("commandExecution"
       (app-server--add buffer id
                        (concat (unless streamed (plist-get item :aggregatedOutput))
                                (format "(%s%s)" (plist-get item :status)
                                        (if code (format ", exit code %d" code) "")))))
      ("fileChange" (app-server--add buffer id (format " (%s)" (plist-get item :status)))))))

(provide 'app-server)
;;; app-server.el ends here
