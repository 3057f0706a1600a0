/**
 * A component whose functions are those of wasi:keyvalue and wasi:config: each passes its parameters on, and returns what the host has answered.
 */
import { componentFromText } from '../worker/pool.ts'

/** The drafts differ in the numbers of `increment`, in the cursor of `list-keys`, and in that only the second has `cas`. */
export const DRAFTS = {
  '0.2.0-draft': { number: 'u64', cursor: 'u64', coreCursor: 'i64', noCursor: '(i64.const 0)', hasCas: false },
  '0.2.0-draft2': {
    number: 's64',
    cursor: 'string',
    coreCursor: 'i32 i32',
    noCursor: '(i32.const 0) (i32.const 0)',
    hasCas: true,
  },
} as const
export type Draft = keyof typeof DRAFTS

const BUCKET = '(borrow $bucket)'

type Passed = { name: string; from: string; params: string; core: string; result: string }

/** Functions with a bucket before their parameters: the guest opens `task`, and returns the result where the host has written it. */
function passedOn(draft: Draft): Passed[] {
  const { number, cursor } = DRAFTS[draft]
  const key = '(param "key" string)'
  const keys = '(param "keys" (list string))'
  return [
    { name: 'get', from: 'store', params: key, core: 'i32 i32', result: '(option (list u8))' },
    {
      name: 'set',
      from: 'store',
      params: `${key} (param "value" (list u8))`,
      core: 'i32 i32 i32 i32',
      result: '',
    },
    { name: 'delete', from: 'store', params: key, core: 'i32 i32', result: '' },
    { name: 'exists', from: 'store', params: key, core: 'i32 i32', result: 'bool' },
    {
      name: 'list-keys',
      from: 'store',
      params: `(param "cursor" (option ${cursor}))`,
      core: `i32 ${DRAFTS[draft].coreCursor}`,
      result: '$key-response',
    },
    {
      name: 'increment',
      from: 'atomics',
      params: `${key} (param "delta" ${number})`,
      core: 'i32 i32 i64',
      result: number,
    },
    {
      name: 'get-many',
      from: 'batch',
      params: keys,
      core: 'i32 i32',
      result: '(list (option (tuple string (list u8))))',
    },
    {
      name: 'set-many',
      from: 'batch',
      params: '(param "key-values" (list (tuple string (list u8))))',
      core: 'i32 i32',
      result: '',
    },
    { name: 'delete-many', from: 'batch', params: keys, core: 'i32 i32', result: '' },
  ]
}

const resultOf = (ok: string, error: string) => `(result (result ${ok} (error ${error})))`

/** The name and the bucket of a function in its interface. */
const imported = ({ name, from, params, result }: Passed) =>
  from === 'store'
    ? `(export "[method]bucket.${name}" (func (param "self" ${BUCKET}) ${params} ${resultOf(result, '$e')}))`
    : `(export "${name}" (func (param "bucket" ${BUCKET}) ${params} ${resultOf(result, '$e')}))`

const hostName = ({ name, from }: Passed) => (from === 'store' ? `[method]bucket.${name}` : name)
const paramsOf = (core: string) => core.split(' ').map((_, index) => `(local.get ${index})`)

const CAS_IMPORTS = `
  (export "cas" (type $cas (sub resource)))
  (type $ce (variant (case "store-error" $e) (case "cas-failed" (own $cas))))
  (export "cas-error" (type $cas-error (eq $ce)))
  (export "[static]cas.new" (func (param "bucket" (borrow $bucket)) (param "key" string) (result (result (own $cas) (error $e)))))
  (export "[method]cas.current" (func (param "self" (borrow $cas)) (result (result (option (list u8)) (error $e)))))
  (export "swap" (func (param "cas" (own $cas)) (param "value" (list u8)) (result (result (error $cas-error)))))`

const CAS_CORE_IMPORTS = `
  (import "host" "[static]cas.new" (func $cas-new (param i32 i32 i32 i32)))
  (import "host" "[method]cas.current" (func $cas-current (param i32 i32)))
  (import "host" "swap" (func $host-swap (param i32 i32 i32 i32)))`

/**
 * `current(key)` of a new cas; `swap(key, value, between)` reads the key, writes `x` to it if `between` is 1, and swaps: 0, or 1 + the case of the
 * error; after a `cas-failed`, it swaps the cas that the error has: 10 + the result.
 */
const CAS_CORE = `
  (func (export "current") (param i32 i32) (result i32)
    (call $cas-new (call $bucket) (local.get 0) (local.get 1) (i32.const 512))
    (if (i32.load8_u (i32.const 512)) (then unreachable))
    (call $cas-current (i32.load (i32.const 516)) (i32.const 600))
    (i32.const 600))
  (func (export "swap") (param i32 i32 i32 i32 i32) (result i32) (local $bucket i32)
    (local.set $bucket (call $bucket))
    (call $cas-new (local.get $bucket) (local.get 0) (local.get 1) (i32.const 512))
    (if (i32.load8_u (i32.const 512)) (then unreachable))
    (if (local.get 4) (then
      (call $host-set (local.get $bucket) (local.get 0) (local.get 1) (i32.const 104) (i32.const 1) (i32.const 700))
      (if (i32.load8_u (i32.const 700)) (then unreachable))))
    (call $host-swap (i32.load (i32.const 516)) (local.get 2) (local.get 3) (i32.const 600))
    (if (i32.eqz (i32.load8_u (i32.const 600))) (then (return (i32.const 0))))
    (if (i32.ne (i32.load8_u (i32.const 604)) (i32.const 1)) (then (return (i32.add (i32.load8_u (i32.const 604)) (i32.const 1)))))
    (call $host-swap (i32.load (i32.const 608)) (local.get 2) (local.get 3) (i32.const 700))
    (i32.add (i32.const 10) (i32.load8_u (i32.const 700))))`

const CAS_LIFTS = `
  (func (export "current") (param "key" string) ${resultOf('(option (list u8))', '$error')} (canon lift (core func $i "current") $OPTIONS))
  (func (export "swap") (param "key" string) (param "value" (list u8)) (param "between" u8) (result u8)
    (canon lift (core func $i "swap") $OPTIONS))`

const OPTIONS = '(memory (core memory $m "memory")) (realloc (core func $m "realloc"))'

/** `opened(identifier)`: 0, or 1 + the case of the error. `set-and-list(key-values)`: the keys after them, in the same run. */
export function keyvalueComponent(draft: Draft, config: string): Promise<Uint8Array> {
  const { cursor, noCursor, hasCas } = DRAFTS[draft]
  const all = passedOn(draft)
  const from = (name: string) =>
    all
      .filter((one) => one.from === name)
      .map(imported)
      .join('\n')
  const lowered = [
    ...all.map((one) => [hostName(one), one.from] as const),
    ['open', 'store'] as const,
    ...(hasCas
      ? (['[static]cas.new', '[method]cas.current', 'swap'] as const).map((n) => [n, 'atomics'] as const)
      : []),
    ['config-get', 'config'] as const,
    ['config-get-all', 'config'] as const,
  ]
  const text = `(component
    (type $store-type (instance
      (export "bucket" (type $bucket (sub resource)))
      (type $variant (variant (case "no-such-store") (case "access-denied") (case "other" string)))
      (export "error" (type $e (eq $variant)))
      (type $record (record (field "keys" (list string)) (field "cursor" (option ${cursor}))))
      (export "key-response" (type $key-response (eq $record)))
      (export "open" (func (param "identifier" string) (result (result (own $bucket) (error $e)))))
      ${from('store')}))
    (import "wasi:keyvalue/store@${draft}" (instance $store (type $store-type)))
    (alias export $store "bucket" (type $bucket))
    (alias export $store "error" (type $error))
    (alias export $store "key-response" (type $key-response))
    (type $atomics-type (instance
      (alias outer 1 $bucket (type $outer-bucket)) (export "bucket" (type $bucket (eq $outer-bucket)))
      (alias outer 1 $error (type $outer-error)) (export "error" (type $e (eq $outer-error)))
      ${from('atomics')} ${hasCas ? CAS_IMPORTS : ''}))
    (import "wasi:keyvalue/atomics@${draft}" (instance $atomics (type $atomics-type)))
    (type $batch-type (instance
      (alias outer 1 $bucket (type $outer-bucket)) (export "bucket" (type $bucket (eq $outer-bucket)))
      (alias outer 1 $error (type $outer-error)) (export "error" (type $e (eq $outer-error)))
      ${from('batch')}))
    (import "wasi:keyvalue/batch@${draft}" (instance $batch (type $batch-type)))
    (type $config-type (instance
      (type $variant (variant (case "upstream" string) (case "io" string)))
      (export "error" (type $e (eq $variant)))
      (export "get" (func (param "key" string) ${resultOf('(option string)', '$e')}))
      (export "get-all" (func ${resultOf('(list (tuple string string))', '$e')}))))
    (import "wasi:config/store@${config}" (instance $config (type $config-type)))
    (alias export $config "error" (type $config-error))
    (core module $memory (memory (export "memory") 20)
      (global $next (mut i32) (i32.const 4096))
      (func (export "realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32) (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
        (global.set $next (i32.add (local.get $at) (local.get 3)))
        (local.get $at)))
    (core instance $m (instantiate $memory))
    ${lowered
      .map(
        ([name, of], index) =>
          `(core func $f${index} (canon lower (func $${of} "${name.replace('config-', '')}") ${OPTIONS}))`,
      )
      .join('\n')}
    (core module $main
      (import "m" "memory" (memory 20))
      (import "host" "open" (func $open (param i32 i32 i32)))
      (import "host" "config-get" (func $config-get (param i32 i32 i32)))
      (import "host" "config-get-all" (func $config-get-all (param i32)))
      ${all.map((one) => `(import "host" "${hostName(one)}" (func $host-${one.name} (param i32 ${one.core} i32)))`).join('\n')}
      ${hasCas ? CAS_CORE_IMPORTS + CAS_CORE : ''}
      (data (i32.const 100) "taskx")
      (func $bucket (result i32)
        (call $open (i32.const 100) (i32.const 4) (i32.const 200))
        (if (i32.load8_u (i32.const 200)) (then unreachable))
        (i32.load (i32.const 204)))
      (func (export "opened") (param i32 i32) (result i32)
        (call $open (local.get 0) (local.get 1) (i32.const 200))
        (if (result i32) (i32.load8_u (i32.const 200))
          (then (i32.add (i32.const 1) (i32.load8_u (i32.const 204)))) (else (i32.const 0))))
      ${all
        .map(
          (one) => `(func (export "${one.name}") (param ${one.core}) (result i32)
        (call $host-${one.name} (call $bucket) ${paramsOf(one.core).join(' ')} (i32.const 304)) (i32.const 304))`,
        )
        .join('\n')}
      (func (export "set-and-list") (param i32 i32) (result i32) (local $bucket i32)
        (local.set $bucket (call $bucket))
        (call $host-set-many (local.get $bucket) (local.get 0) (local.get 1) (i32.const 304))
        (if (i32.load8_u (i32.const 304)) (then unreachable))
        (call $host-list-keys (local.get $bucket) (i32.const 0) ${noCursor} (i32.const 304)) (i32.const 304))
      (func (export "config-get") (param i32 i32) (result i32)
        (call $config-get (local.get 0) (local.get 1) (i32.const 304)) (i32.const 304))
      (func (export "config-get-all") (result i32) (call $config-get-all (i32.const 304)) (i32.const 304)))
    (core instance $i (instantiate $main (with "m" (instance $m)) (with "host" (instance
      ${lowered.map(([name], index) => `(export "${name}" (func $f${index}))`).join('\n')}))))
    (func (export "opened") (param "identifier" string) (result u8) (canon lift (core func $i "opened") ${OPTIONS}))
    ${all
      .map(
        (one) => `(func (export "${one.name}") ${one.params} ${resultOf(one.result, '$error')}
      (canon lift (core func $i "${one.name}") ${OPTIONS}))`,
      )
      .join('\n')}
    (func (export "set-and-list") (param "key-values" (list (tuple string (list u8)))) ${resultOf('$key-response', '$error')}
      (canon lift (core func $i "set-and-list") ${OPTIONS}))
    (func (export "config-get") (param "key" string) ${resultOf('(option string)', '$config-error')}
      (canon lift (core func $i "config-get") ${OPTIONS}))
    (func (export "config-get-all") ${resultOf('(list (tuple string string))', '$config-error')}
      (canon lift (core func $i "config-get-all") ${OPTIONS}))
    ${hasCas ? CAS_LIFTS.replaceAll('$OPTIONS', OPTIONS) : ''})`
  return Promise.resolve(componentFromText(text))
}
