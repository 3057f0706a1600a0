/**
 * A program that decides for rules: it reads a list of messages, and writes an item for the first digit of each value. Below 5: null; 9: a severity; 7: it
 * fails; 8: what nobody understands; others: true.
 */
import { moduleFromText } from '../worker/pool.ts'

const TEXT = String.raw`(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "_start")
    (local $length i32) (local $at i32) (local $out i32) (local $digit i32)
    (block $end (loop $more
      (i32.store (i32.const 0) (i32.add (i32.const 65536) (local.get $length)))
      (i32.store (i32.const 4) (i32.sub (i32.const 900000) (local.get $length)))
      (br_if $end (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br_if $end (i32.eqz (i32.load (i32.const 8))))
      (local.set $length (i32.add (local.get $length) (i32.load (i32.const 8))))
      (br $more)))
    (i32.store8 (i32.const 4096) (i32.const 91))
    (local.set $out (i32.const 4097))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $length)))
      (if (i32.eq (i32.load (i32.add (i32.const 65536) (local.get $at))) (i32.const 0x3a227622)) (then
        (if (i32.gt_u (local.get $out) (i32.const 4097)) (then
          (i32.store8 (local.get $out) (i32.const 44))
          (local.set $out (i32.add (local.get $out) (i32.const 1)))))
        (local.set $digit (i32.load8_u (i32.add (i32.const 65540) (local.get $at))))
        (if (i32.eq (local.get $digit) (i32.const 55)) (then unreachable))
        (if (i32.eq (local.get $digit) (i32.const 57))
          (then
            (i64.store (local.get $out) (i64.const 0x0022726f6a616d22))
            (local.set $out (i32.add (local.get $out) (i32.const 7))))
          (else
            (i32.store (local.get $out) (i32.const 0x65757274))
            (if (i32.eq (local.get $digit) (i32.const 56)) (then (i32.store (local.get $out) (i32.const 0x31303031))))
            (if (i32.lt_u (local.get $digit) (i32.const 53)) (then (i32.store (local.get $out) (i32.const 0x6c6c756e))))
            (local.set $out (i32.add (local.get $out) (i32.const 4)))))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))
    (i32.store8 (local.get $out) (i32.const 93))
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.sub (i32.add (local.get $out) (i32.const 1)) (i32.const 4096)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))`

export const decidingModule = async (): Promise<string> => Buffer.from(await moduleFromText(TEXT)).toString('base64')
