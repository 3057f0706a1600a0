;; A few hundred bytes that ask for some gigabytes outside of any linear memory: refused before it is compiled.
(module
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref) (table 10000000 funcref)
  (func (export "run")))
