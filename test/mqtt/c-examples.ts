/** Builds the devices in C of `examples/`. They need a compiler, libmosquitto and cJSON, which a user's machine may lack; CI has them. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const COMPILER = 'cc'
const LIBRARIES = ['-lmosquitto', '-lcjson']
/** The headers and the libraries are found as the compiler finds them, also below CPATH and LIBRARY_PATH. */
const TRIAL = '#include <cjson/cJSON.h>\n#include <mosquitto.h>\nint main(void) { return 0; }\n'

export const hasNoCompiler =
  process.env['CI'] === undefined &&
  spawnSync(COMPILER, ['-x', 'c', '-o', '/dev/null', '-', ...LIBRARIES], { input: TRIAL }).status !== 0

export type Built = Disposable & { readonly program: string }

/** Throws with the messages of the compiler; a warning is one of them. */
export function buildExample(source: string): Built {
  const folder = mkdtempSync(join(tmpdir(), 'skein-c-example-'))
  const program = join(folder, 'device')
  const options = ['-std=c99', '-D_POSIX_C_SOURCE=200809L', '-Wall', '-Wextra', '-Werror', '-O1', '-o', program]
  const { status, stderr } = spawnSync(COMPILER, [...options, source, ...LIBRARIES], { encoding: 'utf8' })
  if (status !== 0) {
    rmSync(folder, { recursive: true, force: true })
    throw new Error(`${source} does not compile: ${stderr}`)
  }
  return { program, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) }
}
