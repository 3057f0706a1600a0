/** Generates the TypeScript of the protocol with `buf` from proto/*.proto; works offline. */
import { execFile } from 'node:child_process'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const ROOT = join(import.meta.dirname, '..', '..')
const BIN = join(ROOT, 'node_modules', '.bin')
const BUF_DEADLINE_MS = 60_000

/** Path below the root -> text. */
export async function generateProto(): Promise<Map<string, string>> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-proto-'))
  try {
    await promisify(execFile)(join(BIN, 'buf'), ['generate', '--output', folder], {
      cwd: join(ROOT, 'proto'),
      env: { PATH: `${BIN}:${process.env['PATH'] ?? ''}`, HOME: folder },
      timeout: BUF_DEADLINE_MS,
    })
    const files = globSync('gen/**/*.ts', { cwd: folder }).toSorted()
    if (files.length === 0) throw new Error('buf wrote no file: is proto/buf.gen.yaml right?')
    return new Map(files.map((file) => [`proto/${file}`, readFileSync(join(folder, file), 'utf8')]))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
