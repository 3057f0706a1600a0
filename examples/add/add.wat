;; Adds two 32-bit integers. The smallest useful task: inputs [5, 3], result [8].
(module
  (func (export "add") (param $a i32) (param $b i32) (result i32)
    local.get $a
    local.get $b
    i32.add))
