;; Never returns: what a task's timeout and its stop are for.
(module
  (func (export "run")
    (loop $forever
      br $forever)))
