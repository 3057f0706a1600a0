/** Components of WASI 0.2 (task-manager.md section 4): transpiled apart, run like any other module, given nothing of the host. */
import { readdirSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { componentFromText, startPool } from './pool.ts'
import type { TestPool } from './pool.ts'

let host: TestPool
beforeAll(async () => {
  host = await startPool({ slots: 2, runners: 1 })
})
afterAll(() => host[Symbol.asyncDispose]())

/** `realloc` hands out what lies behind the last piece; nobody gives anything back. */
const REALLOC = `(global $end (mut i32) (i32.const 1024))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
    (global.set $end (i32.add (local.get $at) (local.get 3))) (local.get $at))`
/** As `REALLOC`, and the bytes of the piece come along: strings in another encoding grow and shrink. */
const MOVING_REALLOC = REALLOC.replace(
  '(local.get $at))',
  '(memory.copy (local.get $at) (local.get 0) (local.get 1)) (local.get $at))',
)
const OPTIONS = '(memory (core memory $i "memory")) (realloc (core func $i "realloc"))'

/** A component with one function: its core body, its component type, and how it is exported. */
function component(core: string, type: string, options = OPTIONS, exported = '(export "run" (func $f))'): string {
  return `(component (core module $m (memory (export "memory") 1 100) ${REALLOC} ${core})
    (core instance $i (instantiate $m)) (type $t ${type})
    (func $f (type $t) (canon lift (core func $i "f") ${options})) ${exported})`
}

describe('a component', () => {
  test('receives its inputs and returns a value', async () => {
    const add = await componentFromText(
      component(
        '(func (export "f") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))',
        '(func (param "a" u32) (param "b" u32) (result u32))',
      ),
    )
    expect(await host.run(add, { inputs: [40, 2] })).toMatchObject({ state: 'completed', results: 42 })
    expect(await host.run(add, { inputs: [-1, 2] })).toMatchObject({
      reason: 'guest_error',
      error: 'run takes 2 inputs (u32, u32); input 0 must be an integer within the range of u32',
    })
  })

  test('accepts text and returns it', async () => {
    const echo = await componentFromText(
      component(
        `(func (export "f") (param i32 i32) (result i32)
          (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0))`,
        '(func (param "text" string) (result string))',
      ),
    )
    expect(await host.run(echo, { inputs: ['größe 温度'] })).toMatchObject({ results: 'größe 温度' })
  })

  test('preserves 64-bit integers', async () => {
    const same = await componentFromText(
      component('(func (export "f") (param i64) (result i64) (local.get 0))', '(func (param "n" u64) (result u64))'),
    )
    expect(await host.run(same, { inputs: ['18446744073709551615'] })).toMatchObject({
      results: '18446744073709551615',
    })
    expect(await host.run(same, { inputs: [7] })).toMatchObject({ results: 7 })
  })

  test('ends with guest_error when it returns an error, and the error is kept', async () => {
    const refuse = await componentFromText(
      component(
        `(data (i32.const 100) "no sensor")
        (func (export "f") (result i32) (i32.store8 (i32.const 0) (i32.const 1))
          (i32.store (i32.const 4) (i32.const 100)) (i32.store (i32.const 8) (i32.const 9)) (i32.const 0))`,
        '(func (result (result u32 (error string))))',
      ),
    )
    expect(await host.run(refuse)).toMatchObject({
      state: 'failed',
      reason: 'guest_error',
      error: 'run returned an error: no sensor',
      results: { err: 'no sensor' },
    })
  })

  test('imports interfaces with types only, and uses them as inputs and results', async () => {
    const sharing = await componentFromText(`(component
      (type $types (instance
        (type $r (record (field "level" u32) (field "total" u64))) (export "reading" (type (eq $r)))))
      (import "plant:meter/types@0.1.0" (instance $meter (type $types)))
      (alias export $meter "reading" (type $reading))
      (core module $m (memory (export "memory") 1 100) ${REALLOC}
        (func (export "f") (param i32 i64) (result i32)
          (i32.store (i32.const 0) (i32.add (local.get 0) (i32.const 1)))
          (i64.store (i32.const 8) (local.get 1)) (i32.const 0)))
      (core instance $i (instantiate $m))
      (type $t (func (param "r" $reading) (result $reading)))
      (func $f (type $t) (canon lift (core func $i "f") ${OPTIONS})) (export "run" (func $f)))`)
    expect(await host.run(sharing, { inputs: [{ level: 4, total: '18446744073709551615' }] })).toMatchObject({
      results: { level: 5, total: '18446744073709551615' },
    })
    const resource = await componentFromText(`(component
      (import "plant:meter/types@0.1.0" (instance (export "meter" (type (sub resource)))))
      (core module $m (func (export "f"))) (core instance $i (instantiate $m))
      (func (export "run") (canon lift (core func $i "f"))))`)
    expect(await host.run(resource)).toMatchObject({
      reason: 'module_invalid',
      error: 'the module has unsupported imports: plant:meter/types@0.1.0',
    })
  })

  test('accepts and returns bytes as base64 too', async () => {
    const echo = await componentFromText(
      component(
        `(func (export "f") (param i32 i32) (result i32)
          (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0))`,
        '(func (param "data" (list u8)) (result (list u8)))',
      ),
    )
    expect(await host.run(echo, { inputs: [{ base64: 'AP8=' }] })).toMatchObject({ results: [0, 255] })
    expect(await host.run(echo, { inputs: [[0, 255]], bytesAsBase64: true })).toMatchObject({
      results: { base64: 'AP8=' },
    })
    expect(await host.run(echo, { inputs: [{ base64: 'A?' }] })).toMatchObject({
      reason: 'guest_error',
      error: 'run takes 1 input (list<u8>); input 0 must be {"base64": text in base64}',
    })
  })

  test('has the functions of its interfaces called by their own name', async () => {
    const inside = await componentFromText(
      component(
        '(func (export "f") (result i32) (i32.const 5))',
        '(func (result u8))',
        OPTIONS,
        '(instance $api (export "get-value" (func $f))) (export "skein:test/api@1.0.0" (instance $api))',
      ),
    )
    expect(await host.run(inside, { functionName: 'get-value' })).toMatchObject({ results: 5 })
    expect(await host.run(inside, { functionName: 'skein:test/api@1.0.0#get-value' })).toMatchObject({ results: 5 })
    expect(await host.run(inside, { functionName: 'other' })).toMatchObject({
      reason: 'no_such_function',
      error: expect.stringContaining('skein:test/api@1.0.0#get-value') as string,
    })
  })

  test('has a variant with 300 cases, whose number takes two bytes', async () => {
    const cases = Array.from({ length: 300 }, (_, index) => `(case "c${index}"${index % 2 === 0 ? ' u32' : ''})`)
    const variant = await componentFromText(`(component
      (type $types (instance (type $v (variant ${cases.join(' ')})) (export "cases" (type (eq $v)))))
      (import "plant:meter/types@0.1.0" (instance $meter (type $types)))
      (alias export $meter "cases" (type $v))
      (core module $m (memory (export "memory") 1) ${REALLOC}
        (func (export "f") (param i32 i32) (result i32)
          (i32.store16 (i32.const 0) (i32.sub (i32.const 299) (local.get 0)))
          (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
      (core instance $i (instantiate $m))
      (type $t (func (param "v" $v) (result $v)))
      (func $f (type $t) (canon lift (core func $i "f") ${OPTIONS})) (export "run" (func $f)))`)
    for (const [given, expected] of [
      ['c299', { c0: 0 }],
      [{ c0: 7 }, 'c299'],
      ['c255', { c44: 0 }],
    ]) {
      expect(await host.run(variant, { inputs: [given ?? null] })).toMatchObject({ results: expected })
    }
  })

  test('takes 20 parameters, which it receives in its memory', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `(param "p${index}" ${index % 2 === 0 ? 'u64' : 'u8'})`)
    const loads = names.map((_, index) =>
      index % 2 === 0
        ? `(i64.load (i32.add (local.get 0) (i32.const ${index * 8})))`
        : `(i64.load8_u (i32.add (local.get 0) (i32.const ${index * 8})))`,
    )
    const sum = loads.reduce((total, load) => `(i64.add ${total} ${load})`)
    const many = await componentFromText(
      component(`(func (export "f") (param i32) (result i64) ${sum})`, `(func ${names.join(' ')} (result u64))`),
    )
    const inputs = names.map((_, index) => (index % 2 === 0 ? String(2n ** BigInt(index)) : index))
    const expected = names.reduce((total, _, index) => total + (index % 2 === 0 ? 2 ** index : index), 0)
    expect(await host.run(many, { inputs })).toMatchObject({ results: expected })
  })

  test('has strings in UTF-16, also between components with other encodings', async () => {
    const inner = (encoding: string) => `(component
      (core module $m (memory (export "memory") 1) ${MOVING_REALLOC}
        (func (export "f") (param i32 i32) (result i32)
          (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
      (core instance $i (instantiate $m))
      (func (export "echo") (param "s" string) (result string)
        (canon lift (core func $i "f") string-encoding=${encoding} ${OPTIONS})))`
    const nested = await componentFromText(`(component
      (component $inner ${inner('utf16').slice('(component'.length)}
      (component $outer
        (import "echo" (func $echo (param "s" string) (result string)))
        (core module $libc (memory (export "memory") 1) ${MOVING_REALLOC})
        (core instance $libc (instantiate $libc))
        (core func $lowered (canon lower (func $echo) string-encoding=utf8
          (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
        (core module $m (import "h" "echo" (func $echo (param i32 i32 i32)))
          (func (export "f") (param i32 i32) (result i32)
            (call $echo (local.get 0) (local.get 1) (i32.const 16)) (i32.const 16)))
        (core instance $h (export "echo" (func $lowered)))
        (core instance $i (instantiate $m (with "h" (instance $h))))
        (func (export "run") (param "s" string) (result string) (canon lift (core func $i "f")
          string-encoding=utf8 (memory (core memory $libc "memory")) (realloc (core func $libc "realloc")))))
      (instance $a (instantiate $inner))
      (instance $b (instantiate $outer (with "echo" (func $a "echo"))))
      (export "run" (func $b "run")))`)
    for (const text of ['größe 温度', '🙂', '', 'a'.repeat(1_000)]) {
      expect(await host.run(nested, { inputs: [text] })).toMatchObject({ state: 'completed', results: text })
    }
  })

  test('has core modules that share a table and a memory without a maximum, beside tables of their own', async () => {
    const shared = await componentFromText(`(component
      (core module $libc (table (export "table") 2 funcref) (table 1 funcref) (memory (export "memory") 1)
        (func $seven (result i32) (i32.const 7)) (elem (i32.const 1) func $seven))
      (core module $main (type $t (func (result i32)))
        (import "libc" "table" (table $shared 2 funcref)) (import "libc" "memory" (memory 1)) (table 5 funcref)
        (func (export "f") (result i32) (call_indirect $shared (type $t) (i32.const 1))))
      (core instance $libc (instantiate $libc))
      (core instance $i (instantiate $main (with "libc" (instance $libc))))
      (func (export "run") (result u32) (canon lift (core func $i "f"))))`)
    expect(await host.run(shared)).toMatchObject({ state: 'completed', results: 7 })
  })

  test('counts a shared table once', async () => {
    const sharing = (entries: number) => `(component
      (core module $libc (table (export "table") ${entries} funcref))
      (core module $main (import "libc" "table" (table ${entries} funcref)) (func (export "f")))
      (core instance $libc (instantiate $libc))
      (core instance $i (instantiate $main (with "libc" (instance $libc))))
      (func (export "run") (canon lift (core func $i "f"))))`
    expect(await host.run(await componentFromText(sharing(600_000)))).toMatchObject({ state: 'completed' })
    expect(await host.run(await componentFromText(sharing(1_000_001)))).toMatchObject({
      reason: 'module_invalid',
      error: expect.stringContaining('1000001 entries, at most 1000000') as string,
    })
  })

  test('starts with a new instance for every run', async () => {
    const counter = await componentFromText(
      component(
        `(global $n (mut i32) (i32.const 0)) (func (export "f") (result i32)
        (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))`,
        '(func (result u32))',
      ),
    )
    for (let run = 0; run < 3; run++) expect(await host.run(counter)).toMatchObject({ results: 1 })
  })
})

/** A command that calls functions of WASI: `body` is its core code, `imports` what it is linked to. */
function command(imports: string, lowered: string, wanted: string, body: string): string {
  return `(component ${imports}
    (core module $libc (memory (export "memory") 1) ${REALLOC}) (core instance $l (instantiate $libc))
    ${lowered}
    (core module $m (import "libc" "memory" (memory 1)) ${wanted}
      (func (export "f") (result i32) ${body}))
    (core instance $i (instantiate $m (with "libc" (instance $l)) (with "wasi" (instance $wasi))))
    (type $t (func (result (result)))) (func $f (type $t) (canon lift (core func $i "f")))
    (instance $run (export "run" (func $f))) (export "wasi:cli/run@0.2.3" (instance $run)))`
}

describe('a command', () => {
  test('prints to stdout and ends with its exit code', async () => {
    const text = (exit: number) =>
      command(
        `(import "wasi:io/error@0.2.3" (instance $err (export "error" (type (sub resource)))))
         (alias export $err "error" (type $error))
         (import "wasi:io/streams@0.2.3" (instance $streams
           (export "output-stream" (type $os (sub resource)))
           (alias outer 1 $error (type $e)) (type $own (own $e))
           (type $v (variant (case "last-operation-failed" $own) (case "closed"))) (export "stream-error" (type $se (eq $v)))
           (type $b (borrow $os)) (type $l (list u8))
           (export "[method]output-stream.blocking-write-and-flush"
             (func (param "self" $b) (param "contents" $l) (result (result (error $se)))))))
         (alias export $streams "output-stream" (type $os))
         (import "wasi:cli/stdout@0.2.3" (instance $stdout (alias outer 1 $os (type $o)) (type $own (own $o))
           (export "get-stdout" (func (result $own)))))`,
        `(core func $get (canon lower (func $stdout "get-stdout")))
         (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
           (memory (core memory $l "memory")) (realloc (core func $l "realloc"))))
         (core instance $wasi (export "get" (func $get)) (export "write" (func $write)))`,
        `(import "wasi" "get" (func $get (result i32))) (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
         (data (i32.const 100) "from a component\\n")`,
        `(call $write (call $get) (i32.const 100) (i32.const 17) (i32.const 0)) (i32.const ${exit})`,
      )
    expect(await host.run(await componentFromText(text(0)))).toMatchObject({
      state: 'completed',
      results: { exit_code: 0, stdout: 'from a component\n', stderr: '' },
    })
    expect(await host.run(await componentFromText(text(1)))).toMatchObject({
      reason: 'guest_error',
      results: { exit_code: 1, stdout: 'from a component\n' },
    })
  })

  test('gets an ordinary error for a socket', async () => {
    const codes = ['unknown', 'access-denied', 'not-supported'].map((name) => `"${name}"`).join(' ')
    const text = command(
      `(import "wasi:sockets/network@0.2.3" (instance $net (export "network" (type (sub resource)))
         (type $codes (enum ${codes})) (export "error-code" (type (eq $codes)))
         (type $families (enum "ipv4" "ipv6")) (export "ip-address-family" (type (eq $families)))))
       (alias export $net "error-code" (type $code)) (alias export $net "ip-address-family" (type $family))
       (import "wasi:sockets/tcp@0.2.3" (instance $tcp (export "tcp-socket" (type (sub resource)))))
       (alias export $tcp "tcp-socket" (type $socket))
       (import "wasi:sockets/tcp-create-socket@0.2.3" (instance $create
         (alias outer 1 $code (type $c)) (alias outer 1 $family (type $f)) (alias outer 1 $socket (type $s)) (type $own (own $s))
         (export "create-tcp-socket" (func (param "family" $f) (result (result $own (error $c)))))))`,
      `(core func $make (canon lower (func $create "create-tcp-socket") (memory (core memory $l "memory"))))
       (core instance $wasi (export "make" (func $make)))`,
      '(import "wasi" "make" (func $make (param i32 i32)))',
      // The result is an error (1), and the error is access-denied (1): then the command ends well.
      `(call $make (i32.const 0) (i32.const 0))
       (i32.eqz (i32.and (i32.load8_u (i32.const 0)) (i32.load8_u (i32.const 4))))`,
    )
    expect(await host.run(await componentFromText(text))).toMatchObject({ results: { exit_code: 0 } })
  })
})

describe('a component that goes wrong', () => {
  const endless = component('(func (export "f") (loop $again (br $again)))', '(func)')

  test('ends with timeout when it never returns', async () => {
    expect(await host.run(await componentFromText(endless), { timeoutMs: 200 })).toMatchObject({ reason: 'timeout' })
  })

  test('ends with trap where a core module would', async () => {
    const trap = await componentFromText(component('(func (export "f") unreachable)', '(func)'))
    expect(await host.run(trap)).toMatchObject({
      reason: 'trap',
      error: expect.stringContaining('unreachable') as string,
    })
    const deep = await componentFromText(component('(func $f (export "f") (call $f))', '(func)'))
    expect(await host.run(deep)).toMatchObject({ reason: 'trap', error: 'call stack exhausted' })
  })

  test('cannot grow its memories together beyond its limit, and a trap mentions the full memory', async () => {
    const grow = (pages: number) => `(component
      (core module $a (memory 10)) (core instance (instantiate $a))
      (core module $m (memory (export "memory") 1) (func (export "f") (drop (memory.grow (i32.const 9)))
        (if (i32.eq (memory.grow (i32.const ${pages - 9})) (i32.const -1)) (then unreachable))))
      (core instance $i (instantiate $m))
      (type $t (func)) (func $f (type $t) (canon lift (core func $i "f"))) (export "run" (func $f)))`
    // 31 pages for both: 20 are left when they start, and each may take half of them.
    const memoryLimitBytes = 31 * 65_536
    expect(await host.run(await componentFromText(grow(10)), { memoryLimitBytes })).toMatchObject({
      state: 'completed',
    })
    expect(await host.run(await componentFromText(grow(11)), { memoryLimitBytes })).toMatchObject({
      reason: 'trap',
      error: expect.stringMatching(/unreachable.*, with its memory at 655360 of at most 720896 bytes$/) as string,
    })
  })

  test('ends with oom when its command fails at its memory limit, and not otherwise', async () => {
    const fail = (pages: number) => `(component
      (core module $m (memory (export "memory") 1)
        (func (export "f") (result i32) (drop (memory.grow (i32.const ${pages}))) (i32.const 1)))
      (core instance $i (instantiate $m)) (type $t (func (result (result))))
      (func $f (type $t) (canon lift (core func $i "f")))
      (instance $run (export "run" (func $f))) (export "wasi:cli/run@0.2.3" (instance $run)))`
    const memoryLimitBytes = 8 * 65_536
    expect(await host.run(await componentFromText(fail(7)), { memoryLimitBytes })).toMatchObject({
      reason: 'oom',
      error: expect.stringContaining('exited with code 1, with its memory at 524288 of at most 524288 bytes') as string,
      results: { exit_code: 1 },
    })
    expect(await host.run(await componentFromText(fail(5)), { memoryLimitBytes })).toMatchObject({
      reason: 'guest_error',
      results: { exit_code: 1 },
    })
  })

  test('ends with module_invalid when the limit of the run is below its initial memory', async () => {
    const large = await componentFromText('(component (core module $m (memory 20)) (core instance (instantiate $m)))')
    expect(await host.run(large, { memoryLimitBytes: 10 * 65_536 })).toMatchObject({ reason: 'module_invalid' })
  })

  test('ends with trap and the name when it calls a function that was not granted', async () => {
    const text = `(component
      (import "wasi:sockets/tcp@0.2.3" (instance $tcp (export "tcp-socket" (type $f (sub resource))) (type $own (own $f))
        (export "[constructor]tcp-socket" (func (result $own)))))
      (core func $new (canon lower (func $tcp "[constructor]tcp-socket")))
      (core instance $wasi (export "new" (func $new)))
      (core module $m (import "wasi" "new" (func $new (result i32))) (func (export "f") (drop (call $new))))
      (core instance $i (instantiate $m (with "wasi" (instance $wasi))))
      (type $t (func)) (func $f (type $t) (canon lift (core func $i "f"))) (export "run" (func $f)))`
    expect(await host.run(await componentFromText(text))).toMatchObject({
      reason: 'trap',
      error: 'wasi:sockets/tcp: TcpSocket is not granted to this task',
    })
  })

  test('that is damaged inside is refused by the transpiler permanently', async () => {
    const whole = await componentFromText(
      component('(func (export "f") (result i32) i32.const 1)', '(func (result u8))'),
    )
    // `i32.const 1` becomes `i64.const 1`: well formed, badly typed.
    const at = whole.findIndex((byte, index) => byte === 0x41 && whole[index + 1] === 1 && whole[index + 2] === 0x0b)
    const bytes = whole.with(at, 0x42)
    for (let time = 0; time < 2; time++) {
      await expect(host.run(bytes)).rejects.toMatchObject({
        kind: 'malformed',
        message: expect.stringContaining('cannot be transpiled') as string,
      })
    }
  })
})

test('a component is transpiled once for concurrent requests', async () => {
  const bytes = await componentFromText(component('(func (export "f") (result i32) i32.const 9)', '(func (result u8))'))
  const before = readdirSync(host.componentsFolder).length
  const outcomes = await Promise.all(Array.from({ length: 10 }, () => host.run(bytes)))
  expect(outcomes.every((outcome) => outcome.state === 'completed' && outcome.results === 9)).toBe(true)
  expect(readdirSync(host.componentsFolder)).toHaveLength(before + 1)
})
