/**
 * The interfaces of WASI 0.2 that a component may import. Both who judges a component's imports and who runs it read this
 * table. `denied` ones may be imported, since languages link them whether they are used or not; calling them fails.
 */
import type { Extern } from './component-types.ts'
import { MESSAGING_INTERFACES } from './messaging.ts'

/** Functions that work, by interface; resource functions as the binary names them. */
export const WASI_PREVIEW2_FUNCTIONS: Record<string, readonly string[]> = {
  'wasi:cli/environment': ['get-environment', 'get-arguments', 'initial-cwd'],
  'wasi:cli/exit': ['exit', 'exit-with-code'],
  'wasi:cli/stdin': ['get-stdin'],
  'wasi:cli/stdout': ['get-stdout'],
  'wasi:cli/stderr': ['get-stderr'],
  'wasi:cli/terminal-input': [],
  'wasi:cli/terminal-output': [],
  'wasi:cli/terminal-stdin': ['get-terminal-stdin'],
  'wasi:cli/terminal-stdout': ['get-terminal-stdout'],
  'wasi:cli/terminal-stderr': ['get-terminal-stderr'],
  'wasi:clocks/monotonic-clock': ['now', 'resolution', 'subscribe-instant', 'subscribe-duration'],
  'wasi:clocks/wall-clock': ['now', 'resolution'],
  'wasi:io/error': ['[method]error.to-debug-string'],
  'wasi:io/poll': ['poll', '[method]pollable.ready', '[method]pollable.block'],
  'wasi:io/streams': [
    ...['read', 'blocking-read', 'skip', 'blocking-skip', 'subscribe'].map((name) => `[method]input-stream.${name}`),
    ...[
      'check-write',
      'write',
      'blocking-write-and-flush',
      'flush',
      'blocking-flush',
      'subscribe',
      'write-zeroes',
      'blocking-write-zeroes-and-flush',
      'splice',
      'blocking-splice',
    ].map((name) => `[method]output-stream.${name}`),
  ],
  'wasi:random/random': ['get-random-bytes', 'get-random-u64'],
  'wasi:random/insecure': ['get-insecure-random-bytes', 'get-insecure-random-u64'],
  'wasi:random/insecure-seed': ['insecure-seed'],
  'wasi:filesystem/preopens': ['get-directories'],
}

/** Interfaces whose every function fails: no files, no network. */
export const WASI_PREVIEW2_DENIED: readonly string[] = [
  'wasi:filesystem/types',
  'wasi:http/outgoing-handler',
  'wasi:http/types',
  'wasi:sockets/instance-network',
  'wasi:sockets/ip-name-lookup',
  'wasi:sockets/network',
  'wasi:sockets/tcp',
  'wasi:sockets/tcp-create-socket',
  'wasi:sockets/udp',
  'wasi:sockets/udp-create-socket',
]

/** The interface that a command exports: it takes nothing and answers with its exit code. */
export const COMMAND_INTERFACE = 'wasi:cli/run'

const VERSIONED = /^(wasi:[a-z0-9-]+\/[a-z0-9-]+)@0\.2\.\d+$/

/** `wasi:cli/exit@0.2.3` → `wasi:cli/exit`; undefined for any other name or version. */
export function wasiPreview2Interface(name: string): string | undefined {
  return VERSIONED.exec(name)?.[1]
}

/** What of an import nobody offers: the name itself, or the functions of the interface that are not there. */
export function findUnofferedOf(name: string, extern: Extern): string[] {
  // A type that is imported by itself asks nothing of us.
  if (extern.sort === 'type' && extern.type.sort === 'value' && extern.type.type.kind !== 'resource') return []
  const known = wasiPreview2Interface(name)
  if (extern.sort !== 'instance') return [name]
  if (known !== undefined && WASI_PREVIEW2_DENIED.includes(known)) return []
  const offered =
    known === undefined ? functionsNamed(MESSAGING_INTERFACES, name) : functionsNamed(WASI_PREVIEW2_FUNCTIONS, known)
  if (offered === undefined) return [name]
  return [...extern.exports]
    .filter(([wanted, { sort }]) => sort === 'function' && !offered.includes(wanted))
    .map(([wanted]) => `${name}#${wanted}`)
}

/** Undefined for what every object has, such as `constructor`. */
function functionsNamed(table: Record<string, readonly string[]>, name: string): readonly string[] | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
