/** Which compilers are there: those on the path, and those of the folder that `install.sh` filled. */
import { execFileSync } from 'node:child_process'
import { accessSync, constants, existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { processEnvironment } from '#core/config/index.ts'

/** The folder of `install.sh`. */
export const TOOLS = processEnvironment()['RECIPE_TOOLS']

export const PATH = [
  ...(TOOLS === undefined ? [] : [join(TOOLS, 'node_modules', '.bin'), join(TOOLS, 'python', 'bin')]),
  join(import.meta.dirname, '..', '..', 'node_modules', '.bin'),
  processEnvironment()['PATH'] ?? '',
].join(delimiter)

/** What a line needs beside its program. */
const PARTS: readonly { pattern: RegExp; name: string; isThere: () => boolean }[] = [
  { pattern: /^go /, name: 'Go 1.24', isThere: isGoNewEnough },
  {
    pattern: /^clang(\+\+)? .*--target=wasm32-wasi/,
    name: 'wasi-libc',
    isThere: () => existsSync('/usr/lib/wasm32-wasi/libc.a'),
  },
  { pattern: /^clang\+\+ /, name: 'libc++ for wasm32', isThere: () => existsSync('/usr/lib/wasm32-wasi/libc++.a') },
  ...['wasm32-unknown-unknown', 'wasm32-wasip1', 'wasm32-wasip2'].map((target) => ({
    pattern: new RegExp(`^(rustc|cargo) .*--target ${target}`),
    name: `the target ${target} of Rust`,
    isThere: () => hasRustTarget(target),
  })),
  {
    pattern: /wasi-shim/,
    name: 'wasi-shim',
    isThere: () => existsSync(join(TOOLS ?? '', 'node_modules', '@assemblyscript', 'wasi-shim')),
  },
]

/** The names of what the lines need and this machine does not have. */
export function missingFor(commands: readonly string[]): string[] {
  const missing = new Set<string>()
  for (const command of commands) {
    // Variables before the program.
    const line = command.replace(/^([A-Z]+=\S+ )+/, '')
    const [program = ''] = line.split(' ')
    if (program !== 'skein' && !isOnPath(program)) missing.add(program)
    for (const { pattern, name, isThere } of PARTS) if (pattern.test(line) && !isThere()) missing.add(name)
  }
  return [...missing]
}

function isOnPath(program: string): boolean {
  return PATH.split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

/** `//go:wasmexport` came with 1.24. */
function isGoNewEnough(): boolean {
  const [, minor = '0'] = /go1\.(\d+)/.exec(outputOf('go', ['version'])) ?? []
  return Number(minor) >= 24
}

function outputOf(program: string, args: string[]): string {
  try {
    return execFileSync(program, args, { stdio: 'pipe' }).toString()
  } catch {
    return ''
  }
}

function hasRustTarget(target: string): boolean {
  const folder = outputOf('rustc', ['--print', 'target-libdir', '--target', target]).trim()
  return folder !== '' && existsSync(folder)
}
