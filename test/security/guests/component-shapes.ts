/**
 * Components of every shape that the transpiler has code for: each type taken, given, asked for and answered, each
 * encoding of text, resources of both sides, components within components. What their scripts use is what scripts may use.
 */

type Shape = { type: string; flat: readonly string[] }

const SHAPES: Record<string, Shape> = {
  bool: { type: 'bool', flat: ['i32'] },
  s8: { type: 's8', flat: ['i32'] },
  u8: { type: 'u8', flat: ['i32'] },
  s16: { type: 's16', flat: ['i32'] },
  u16: { type: 'u16', flat: ['i32'] },
  s32: { type: 's32', flat: ['i32'] },
  u32: { type: 'u32', flat: ['i32'] },
  s64: { type: 's64', flat: ['i64'] },
  u64: { type: 'u64', flat: ['i64'] },
  f32: { type: 'f32', flat: ['f32'] },
  f64: { type: 'f64', flat: ['f64'] },
  char: { type: 'char', flat: ['i32'] },
  string: { type: 'string', flat: ['i32', 'i32'] },
  enum: { type: '(enum "low" "high")', flat: ['i32'] },
  flags: { type: '(flags "a" "b")', flat: ['i32'] },
  'many flags': { type: `(flags ${names(20)})`, flat: ['i32'] },
  record: { type: '(record (field "value" f64) (field "unit-name" string))', flat: ['f64', 'i32', 'i32'] },
  'large record': {
    type: `(record ${Array.from({ length: 20 }, (_, index) => `(field "f${index}" u32)`).join(' ')})`,
    flat: Array.from({ length: 20 }, () => 'i32'),
  },
  tuple: { type: '(tuple u8 f64 s64)', flat: ['i32', 'f64', 'i64'] },
  option: { type: '(option u32)', flat: ['i32', 'i32'] },
  'option of text': { type: '(option string)', flat: ['i32', 'i32', 'i32'] },
  'option of option': { type: '(option (option u8))', flat: ['i32', 'i32', 'i32'] },
  result: { type: '(result u32 (error string))', flat: ['i32', 'i32', 'i32'] },
  'empty result': { type: '(result)', flat: ['i32'] },
  variant: { type: '(variant (case "a" u64) (case "b" f32) (case "c" f64) (case "none"))', flat: ['i32', 'i64'] },
  'variant of floats': { type: '(variant (case "a" f32) (case "b" u32))', flat: ['i32', 'i32'] },
  ...Object.fromEntries(
    ['bool', 's8', 'u8', 's16', 'u16', 's32', 'u32', 's64', 'u64', 'f32', 'f64', 'char', 'string', '(tuple u8 string)']
      .concat(['(list u8)', '(option u64)', '(result string (error u8))'])
      .map((item) => [`list of ${item}`, { type: `(list ${item})`, flat: ['i32', 'i32'] }]),
  ),
}

/** A flat list beyond this is passed in memory. */
const MAX_FLAT_PARAMS = 16

const REALLOC = `(global $end (mut i32) (i32.const 1024))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
    (global.set $end (i32.add (local.get $at) (local.get 3))) (local.get $at))`
const LIBC = `(core module $libc (memory (export "memory") 1) ${REALLOC}) (core instance $l (instantiate $libc))`
const OPTIONS = '(memory (core memory $l "memory")) (realloc (core func $l "realloc"))'

function names(count: number): string {
  return Array.from({ length: count }, (_, index) => `"n${index}"`).join(' ')
}

/** Takes a value and answers with what an import makes of it. */
function passing({ type, flat }: Shape, options: string, postReturn: boolean): string {
  const params = flat.length > MAX_FLAT_PARAMS ? ['i32'] : flat
  const isReturnedFlat = flat.length === 1
  const result = isReturnedFlat ? flat[0] : 'i32'
  const given = params.map((_, index) => `(local.get ${index})`).join(' ')
  const lowered = `(param ${[...params, ...(isReturnedFlat ? [] : ['i32'])].join(' ')}) ${isReturnedFlat ? `(result ${result})` : ''}`
  const body = isReturnedFlat ? `(call $f ${given})` : `(call $f ${given} (i32.const 0)) (i32.const 0)`
  const cleanUp = postReturn ? `(func (export "clean-up") (param ${result}))` : ''
  return `(component
    (import "wasi:http/types@0.2.3" (instance $x (type $d ${type}) (export "t" (type $t (eq $d)))
      (export "f" (func (param "x" $t) (result $t)))))
    (alias export $x "t" (type $t)) ${LIBC}
    (core func $lowered (canon lower (func $x "f") ${options}))
    (core instance $env (export "f" (func $lowered)))
    (core module $m (import "env" "f" (func $f ${lowered})) (import "libc" "memory" (memory 1))
      (func (export "run") (param ${params.join(' ')}) (result ${result}) ${body}) ${cleanUp})
    (core instance $i (instantiate $m (with "env" (instance $env)) (with "libc" (instance $l))))
    (func $run (param "x" $t) (result $t) (canon lift (core func $i "run") ${options}
      ${postReturn ? '(post-return (core func $i "clean-up"))' : ''}))
    (export "run" (func $run)))`
}

const EXPORTED_RESOURCE = `(component
  (core module $m (func (export "f") (param i32) (result i32) local.get 0) (func (export "d") (param i32)))
  (core instance $i (instantiate $m))
  (type $r (resource (rep i32) (dtor (core func $i "d"))))
  (core func $new (canon resource.new $r)) (core func $rep (canon resource.rep $r)) (core func $drop (canon resource.drop $r))
  (core instance $env (export "new" (func $new)) (export "rep" (func $rep)) (export "drop" (func $drop)))
  (core module $u (import "env" "new" (func $new (param i32) (result i32))) (import "env" "rep" (func $rep (param i32) (result i32)))
    (import "env" "drop" (func $drop (param i32)))
    (func (export "make") (param i32) (result i32) (call $new (local.get 0)))
    (func (export "take") (param i32) (call $drop (local.get 0)))
    (func (export "read") (param i32) (result i32) (local.get 0)))
  (core instance $v (instantiate $u (with "env" (instance $env))))
  (func $constructor (param "x" u32) (result (own $r)) (canon lift (core func $v "make")))
  (func $method (param "self" (borrow $r)) (result u32) (canon lift (core func $v "read")))
  (func $static (param "x" (own $r)) (canon lift (core func $v "take")))
  (component $shim (import "r" (type $r (sub resource)))
    (import "[constructor]r" (func $constructor (param "x" u32) (result (own $r))))
    (import "[method]r.read" (func $method (param "self" (borrow $r)) (result u32)))
    (import "[static]r.take" (func $static (param "x" (own $r))))
    (export $rx "sensor" (type $r))
    (export "[constructor]sensor" (func $constructor) (func (param "x" u32) (result (own $rx))))
    (export "[method]sensor.read" (func $method) (func (param "self" (borrow $rx)) (result u32)))
    (export "[static]sensor.take" (func $static) (func (param "x" (own $rx)))))
  (instance $api (instantiate $shim (with "r" (type $r)) (with "[constructor]r" (func $constructor))
    (with "[method]r.read" (func $method)) (with "[static]r.take" (func $static))))
  (export "acme:sensors/api@1.0.0" (instance $api)))`

const IMPORTED_RESOURCE = `(component
  (import "wasi:http/types@0.2.3" (instance $x (export "fields" (type $f (sub resource)))
    (export "[constructor]fields" (func (result (own $f))))
    (export "[method]fields.size" (func (param "self" (borrow $f)) (result u32)))
    (export "[static]fields.take" (func (param "x" (own $f)) (result (option (own $f)))))))
  (alias export $x "fields" (type $fields)) ${LIBC}
  (core func $new (canon lower (func $x "[constructor]fields"))) (core func $size (canon lower (func $x "[method]fields.size")))
  (core func $take (canon lower (func $x "[static]fields.take") ${OPTIONS}))
  (core func $drop (canon resource.drop $fields))
  (core instance $env (export "new" (func $new)) (export "size" (func $size)) (export "take" (func $take)) (export "drop" (func $drop)))
  (core module $m (import "env" "new" (func $new (result i32))) (import "env" "size" (func $size (param i32) (result i32)))
    (import "env" "take" (func $take (param i32 i32))) (import "env" "drop" (func $drop (param i32)))
    (func (export "run") (param i32) (result i32) (call $take (call $new) (i32.const 0)) (call $drop (i32.load (i32.const 4)))
      (call $size (local.get 0))) (import "libc" "memory" (memory 1))
    (func (export "make") (result i32) (call $new)))
  (core instance $i (instantiate $m (with "env" (instance $env)) (with "libc" (instance $l))))
  (func $run (param "x" (borrow $fields)) (result u32) (canon lift (core func $i "run")))
  (func $make (result (own $fields)) (canon lift (core func $i "make")))
  (export "run" (func $run)) (export "make" (func $make)))`.replace(
  /\(func \(export "run"\)(.*\n.*)\(import "libc" "memory" \(memory 1\)\)/,
  '(import "libc" "memory" (memory 1)) (func (export "run")$1',
)

/** The type of one component's function is that of another's import, with memories of their own: adapters are between. */
function composed(inner: string, outer: string): string {
  return `(component
    (component $a ${LIBC}
      (core module $m (import "libc" "memory" (memory 1)) (func (export "f") (param i32 i32) (result i32)
        (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
      (core instance $i (instantiate $m (with "libc" (instance $l))))
      (func $f (param "x" string) (result string) (canon lift (core func $i "f") ${OPTIONS} ${inner}))
      (export "echo" (func $f)))
    (component $b (import "echo" (func $echo (param "x" string) (result string))) ${LIBC}
      (core func $lowered (canon lower (func $echo) ${OPTIONS} ${outer}))
      (core instance $env (export "echo" (func $lowered)))
      (core module $m (import "env" "echo" (func $echo (param i32 i32 i32))) (func (export "f") (param i32 i32) (result i32)
        (call $echo (local.get 0) (local.get 1) (i32.const 0)) (i32.const 0)))
      (core instance $i (instantiate $m (with "env" (instance $env))))
      (func $f (param "x" string) (result string) (canon lift (core func $i "f") ${OPTIONS} ${outer}))
      (export "run" (func $f)))
    (instance $a (instantiate $a)) (instance $b (instantiate $b (with "echo" (func $a "echo"))))
    (alias export $b "run" (func $run)) (export "run" (func $run)))`
}

const ENCODINGS = ['string-encoding=utf8', 'string-encoding=utf16']
/** What the transpiler cannot yet carry from one component to another is left out. */
const PAIRS = [
  ['string-encoding=utf8', 'string-encoding=utf8'],
  ['string-encoding=utf8', 'string-encoding=utf16'],
  ['string-encoding=utf16', 'string-encoding=utf8'],
]

/** Text of components by what is special about them. */
export function componentShapes(): [name: string, text: string][] {
  return [
    ...Object.entries(SHAPES).map(([name, shape]): [string, string] => [name, passing(shape, OPTIONS, false)]),
    ...ENCODINGS.flatMap((encoding) =>
      ['string', 'list of string', 'record', 'char'].map((name): [string, string] => [
        `${name}, ${encoding}`,
        passing(SHAPES[name] as Shape, `${OPTIONS} ${encoding}`, true),
      ]),
    ),
    ...PAIRS.map(([inner = '', outer = '']): [string, string] => [`${inner} within ${outer}`, composed(inner, outer)]),
    ['an exported resource', EXPORTED_RESOURCE],
    ['an imported resource', IMPORTED_RESOURCE],
  ]
}
