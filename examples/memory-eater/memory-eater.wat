;; Takes memory page by page, writes to each one so that it is really used, and gives up when it gets no more.
(module
  (memory (export "memory") 1)
  (func (export "run")
    (local $pages i32)
    (loop $more
      (local.set $pages (memory.grow (i32.const 1)))
      (if (i32.eq (local.get $pages) (i32.const -1))
        (then unreachable))
      (i32.store (i32.mul (local.get $pages) (i32.const 65536)) (i32.const 1))
      br $more)))
