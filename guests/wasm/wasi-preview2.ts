/**
 * The interfaces of WASI 0.2 that a component may import. Both the check of imports and the runtime use this table. Denied
 * interfaces may be imported, because compilers link them even if unused; calls to them fail.
 */
import type { Extern } from './component-types.ts'
import { MESSAGING_INTERFACES } from './messaging.ts'
import { STATE_INTERFACES, stateInterface } from './state.ts'

/** Implemented functions, by interface; resource functions have the names of the binary format. */
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

/** Interfaces whose functions all fail: no files, no network. */
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

/** Interfaces that are not part of WASI 0.2: the environment by name, with the version. */
const CONFIG_INTERFACES: Record<string, readonly string[]> = {
  'wasi:config/store@0.2.0-draft': ['get', 'get-all'],
  'wasi:config/store@0.2.0-rc.1': ['get', 'get-all'],
}

/** The interface that a command exports: takes no parameters and returns its exit code. */
export const COMMAND_INTERFACE = 'wasi:cli/run'

const VERSIONED = /^(wasi:[a-z0-9-]+\/[a-z0-9-]+)@0\.2\.\d+$/

/** `wasi:cli/exit@0.2.3` → `wasi:cli/exit`; undefined for any other name or version. */
export function wasiPreview2Interface(name: string): string | undefined {
  return VERSIONED.exec(name)?.[1]
}

/** The unsupported parts of an import: its name, or the unknown functions of the interface. */
export function findUnofferedOf(name: string, extern: Extern): string[] {
  if (isPlainType(extern)) return []
  const known = wasiPreview2Interface(name)
  if (extern.sort !== 'instance') return [name]
  if (known !== undefined && WASI_PREVIEW2_DENIED.includes(known)) return []
  const offered = known === undefined ? offeredBySkein(name) : functionsNamed(WASI_PREVIEW2_FUNCTIONS, known)
  // An interface of types alone, which another interface uses.
  if (offered === undefined) {
    const types = [...extern.exports.values()]
    return types.length > 0 && types.every(isPlainType) ? [] : [name]
  }
  return [...extern.exports]
    .filter(([wanted, { sort }]) => sort === 'function' && !offered.includes(wanted))
    .map(([wanted]) => `${name}#${wanted}`)
}

/** An imported type needs no implementation, unless it is a resource. */
function isPlainType(extern: Extern): boolean {
  return extern.sort === 'type' && extern.type.sort === 'value' && extern.type.type.kind !== 'resource'
}

function offeredBySkein(name: string): readonly string[] | undefined {
  const state = stateInterface(name)
  if (state !== undefined) return STATE_INTERFACES[state]
  return functionsNamed(MESSAGING_INTERFACES, name) ?? functionsNamed(CONFIG_INTERFACES, name)
}

/** Undefined for properties of Object.prototype, such as `constructor`. */
function functionsNamed(table: Record<string, readonly string[]>, name: string): readonly string[] | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
