/** Guests that count in the state of their task. */
import { componentFromText, moduleFromText } from '../worker/pool.ts'

/** `add(delta)` adds to the 32-bit number `n` of a bucket (0 of the task, 1 of the client), and returns it; a negative code of `state_get` otherwise. */
export const coreCounter = (bucket = 0) =>
  moduleFromText(`(module
    (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "n")
    (func (export "add") (param $delta i32) (result i32) (local $code i32)
      (local.set $code (call $get (i32.const ${bucket}) (i32.const 100) (i32.const 1) (i32.const 0) (i32.const 4)))
      (if (i32.and (i32.lt_s (local.get $code) (i32.const 0)) (i32.ne (local.get $code) (i32.const -3)))
        (then (return (local.get $code))))
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (local.get $delta)))
      (local.set $code (call $set (i32.const ${bucket}) (i32.const 100) (i32.const 1) (i32.const 0) (i32.const 4)))
      (if (local.get $code) (then (return (local.get $code))))
      (i32.load (i32.const 0))))`)

/** `count(key)` adds 1 to a key of four bytes, and returns the sum. */
export const keyedCounter = () =>
  moduleFromText(`(module
    (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "count") (param $key i32) (result i32) (local $at i32)
      (local.set $at (i32.const 4))
      (loop $digits
        (local.set $at (i32.sub (local.get $at) (i32.const 1)))
        (i32.store8 offset=100 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $key) (i32.const 10))))
        (local.set $key (i32.div_u (local.get $key) (i32.const 10)))
        (br_if $digits (local.get $at)))
      (drop (call $get (i32.const 0) (i32.const 100) (i32.const 4) (i32.const 0) (i32.const 4)))
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
      (if (call $set (i32.const 0) (i32.const 100) (i32.const 4) (i32.const 0) (i32.const 4)) (then unreachable))
      (i32.load (i32.const 0))))`)

/** `add(delta)` of a component: `increment` of wasi:keyvalue/atomics with the key `n` of the bucket `task`; the number, or 1000 for an err. */
export const componentCounter = (version: string) =>
  Promise.resolve(
    componentFromText(`(component
    (type $store-type (instance
      (export "bucket" (type $bucket (sub resource)))
      (type $error (variant (case "no-such-store") (case "access-denied") (case "other" string)))
      (export "error" (type $error-out (eq $error)))
      (type $open (func (param "identifier" string) (result (result (own $bucket) (error $error-out)))))
      (export "open" (func (type $open)))))
    (import "wasi:keyvalue/store@${version}" (instance $store (type $store-type)))
    (alias export $store "bucket" (type $bucket))
    (alias export $store "error" (type $error))
    (type $atomics-type (instance
      (alias outer 1 $bucket (type $outer-bucket))
      (export "bucket" (type $b (eq $outer-bucket)))
      (alias outer 1 $error (type $outer-error))
      (export "error" (type $e (eq $outer-error)))
      (export "increment" (func (param "bucket" (borrow $b)) (param "key" string) (param "delta" s64) (result (result s64 (error $e)))))))
    (import "wasi:keyvalue/atomics@${version}" (instance $atomics (type $atomics-type)))
    (core module $memory (memory (export "memory") 1)
      (global $next (mut i32) (i32.const 4096))
      (func (export "realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32) (local.set $at (global.get $next))
        (global.set $next (i32.add (global.get $next) (local.get 3)))
        (local.get $at)))
    (core instance $m (instantiate $memory))
    (core func $open (canon lower (func $store "open") (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (core func $increment (canon lower (func $atomics "increment") (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (core module $main
      (import "m" "memory" (memory 1))
      (import "host" "open" (func $open (param i32 i32 i32)))
      (import "host" "increment" (func $increment (param i32 i32 i32 i64 i32)))
      (data (i32.const 100) "task") (data (i32.const 110) "n")
      (func (export "add") (param $delta i64) (result i64)
        (call $open (i32.const 100) (i32.const 4) (i32.const 200))
        (if (i32.load8_u (i32.const 200)) (then (return (i64.const 1000))))
        (call $increment (i32.load (i32.const 204)) (i32.const 110) (i32.const 1) (local.get $delta) (i32.const 300))
        (if (i32.load8_u (i32.const 300)) (then (return (i64.const 1000))))
        (i64.load (i32.const 308))))
    (core instance $i (instantiate $main
      (with "m" (instance $m))
      (with "host" (instance (export "open" (func $open)) (export "increment" (func $increment))))))
    (func (export "add") (param "delta" s64) (result s64) (canon lift (core func $i "add"))))`),
  )
