// openapi.json as generators read it: clients of three languages compile, and their first call works against the product
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { compileClient, generateClient, openapiTools, runCommand, toolOf } from '../../tools/openapi-clients.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'

const HERE = import.meta.dirname
const ROOT = join(HERE, '..', '..')
const PASSWORD = 'the-first-admin'
const MADE = /^made [0-9a-f-]{36}\n$/

const has = {
  typescript: openapiTools() !== undefined,
  python: openapiTools() !== undefined,
  go: openapiTools() !== undefined && isInstalled('go'),
}

let installation: Installation
let whole: Whole
let folder: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-clients-'))
  if (!Object.values(has).some(Boolean)) return
  installation = await createInstallation()
  whole = await startWhole(installation)
})

afterAll(async () => {
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
  rmSync(folder, { recursive: true, force: true })
})

test.runIf(process.env['CI'] === 'true')('generators and compilers are installed where tests decide', () => {
  expect(has).toEqual({ typescript: true, python: true, go: true })
})

describe('a client', () => {
  test.skipIf(!has.typescript)('of TypeScript (openapi-typescript) compiles and is used', async () => {
    // Beside its packages, where they are found.
    const client = join(openapiTools() ?? '', 'typescript')
    const generated = join(client, 'generated')
    mkdirSync(generated, { recursive: true })
    for (const file of ['call.mts', 'tsconfig.json']) copyFileSync(join(HERE, 'typescript', file), join(client, file))
    const bin = (name: string) => join(client, 'node_modules', '.bin', name)
    await runCommand(
      [bin('openapi-typescript'), join(ROOT, 'openapi.json'), '-o', join(generated, 'schema.d.ts')],
      ROOT,
    )
    await runCommand([bin('tsc'), '-p', client], ROOT)
    expect(await runCommand([process.execPath, join(client, 'call.mts'), installation.base, PASSWORD], ROOT)).toMatch(
      MADE,
    )
  })

  test.skipIf(!has.python)('of Python (openapi-generator) is imported and used', async () => {
    const client = join(folder, 'python')
    await generateClient('python', client)
    await compileClient('python', client)
    copyFileSync(join(HERE, 'python', 'call.py'), join(client, 'call.py'))
    expect(await runCommand([toolOf('python'), 'call.py', installation.base, PASSWORD], client)).toMatch(MADE)
  })

  test.skipIf(!has.go)('of Go (openapi-generator) compiles and is used', async () => {
    const client = join(folder, 'go')
    await generateClient('go', client)
    mkdirSync(join(client, 'call'))
    copyFileSync(join(HERE, 'go', 'call.go'), join(client, 'call', 'main.go'))
    await compileClient('go', client)
    expect(await runCommand(['go', 'run', './call', installation.base, PASSWORD], client)).toMatch(MADE)
  })
})

function isInstalled(program: string): boolean {
  try {
    execFileSync('which', [program], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
