/**
 * A command that publishes the value of each record that it reads, in a message of its own: the records of one message, or of a list of messages.
 * Before a negative value it traps.
 */
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'

const PAGES = 20
const BEGIN = 65_536
const PREFIX = '[{"n":"v","v":'

const SOURCE = `(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "skein" "publish" (func $publish (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") ${PAGES})
  (data (i32.const 64) "${PREFIX.replaceAll('"', '\\"')}")
  (func (export "_start") (local $end i32) (local $at i32) (local $to i32) (local $byte i32)
    (local.set $end (i32.const ${BEGIN}))
    (block $is_read (loop $more
      (i32.store (i32.const 0) (local.get $end))
      (i32.store (i32.const 4) (i32.sub (i32.const ${PAGES * 65_536}) (local.get $end)))
      (br_if $is_read (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br_if $is_read (i32.eqz (i32.load (i32.const 8))))
      (local.set $end (i32.add (local.get $end) (i32.load (i32.const 8))))
      (br $more)))
    (local.set $at (i32.const ${BEGIN}))
    (block $is_done (loop $next
      (br_if $is_done (i32.ge_u (local.get $at) (i32.sub (local.get $end) (i32.const 4))))
      ;; "v":
      (if (i32.eq (i32.load (local.get $at)) (i32.const 0x3a227622)) (then
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 45)) (then unreachable))
        (local.set $to (i32.const ${64 + PREFIX.length}))
        (block $is_copied (loop $copy
          (local.set $byte (i32.load8_u (local.get $at)))
          (br_if $is_copied (i32.eq (local.get $byte) (i32.const 44)))
          (br_if $is_copied (i32.eq (local.get $byte) (i32.const 125)))
          (i32.store8 (local.get $to) (local.get $byte))
          (local.set $to (i32.add (local.get $to) (i32.const 1)))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $copy)))
        (i32.store8 (local.get $to) (i32.const 125))
        (i32.store8 (i32.add (local.get $to) (i32.const 1)) (i32.const 93))
        (if (call $publish (i32.const 0) (i32.const 0) (i32.const 64) (i32.sub (local.get $to) (i32.const 62))) (then unreachable))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))))`

export async function relayModule(): Promise<Buffer> {
  return Buffer.from(await parse(SOURCE))
}
