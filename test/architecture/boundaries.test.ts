/** The layer rule of `rooms.ts`, checked over every import of the tree. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkImports } from './check-imports.ts'
import { EXAMINERS, IN_BROWSERS, PACKAGE_OWNERS, PURE_FILES, ROOMS } from './rooms.ts'
import { ROOT, importsOf, readSources } from './source-imports.ts'

const sources = readSources()
const tree = new Set(sources.map((source) => source.path))
const report = checkImports(sources, tree)

/** Fewer edges than this means that the checker has gone blind. */
const MIN_EDGES = 900
/** Fewer files than this in a room means that it has moved. */
const MIN_FILES = 2

describe('boundaries', () => {
  it('no file imports what its room must not import', () => {
    expect(report.violations).toEqual([])
  })

  it('include every room and a plausible number of edges', () => {
    const counts = ROOMS.filter((room) => room.name !== 'bench').map((room) => [
      room.name,
      report.fileCounts.get(room.name) ?? 0,
    ])
    expect(counts.filter(([, count]) => Number(count) < MIN_FILES)).toEqual([])
    expect(report.edgeCount).toBeGreaterThan(MIN_EDGES)
    for (const pattern of PURE_FILES)
      expect(
        sources.some((source) => pattern.test(source.path)),
        String(pattern),
      ).toBe(true)
  })

  it('have no row for a room or a package without use', () => {
    const names = new Set(ROOMS.map((room) => room.name))
    for (const room of ROOMS) expect(room.mayImport.filter((name) => !names.has(name))).toEqual([])
    expect(
      PACKAGE_OWNERS.map((owner) => owner.package).filter(
        (name) => !report.packages.has(name) && !report.bundled.has(name),
      ),
    ).toEqual([])
  })

  it('every package that runs is a dependency, which `npm ci --omit=dev` installs', () => {
    const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    expect([...report.packages].filter((name) => dependencies[name] === undefined)).toEqual([])
  })

  it('every package of the browser that no program imports is a development package, because images contain what is built of it', () => {
    const { devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      devDependencies: Record<string, string>
    }
    expect(report.bundled.size).toBeGreaterThan(4)
    const onlyBundled = [...report.bundled].filter((name) => !report.packages.has(name))
    expect(onlyBundled.filter((name) => devDependencies[name] === undefined)).toEqual([])
  })

  // Each planted edge is one way of breaking the rule; a checker that misses one is not believed about the tree.
  it.each([
    ['a higher room', 'core/planted.ts', `import { startApi } from '#api/index.ts'`],
    ['technology above core', 'core/planted.ts', `import { createHttpApp } from '#http/index.ts'`],
    [
      'what starts the edge in it',
      'http/planted.ts',
      `import { Supervisor } from '#infrastructure/processes/index.ts'`,
    ],
    [
      'the inside of a part of guests',
      'worker/planted.ts',
      `import { readModule } from '#guests/wasm/module-reader.ts'`,
    ],
    ['a type of a higher room', 'api/identity/planted.ts', `import type { Devices } from '#api/devices/index.ts'`],
    ['a re-export', 'worker/planted.ts', `export { startManager } from '#manager/index.ts'`],
    ['a re-export of everything', 'worker/planted.ts', `export * from '#manager/index.ts'`],
    ['a dynamic import', 'proxy/planted.ts', `await import('#manager/index.ts')`],
    ['an import type', 'proxy/planted.ts', `export type M = import('#manager/index.ts').Manager`],
    ['an import for its effect', 'manager/planted.ts', `import '#worker/index.ts'`],
    ['a relative path out of the room', 'api/devices/planted.ts', `import { Id } from '../identity/index.ts'`],
    ['the inside of another room', 'api/devices/planted.ts', `import { Id } from '#api/identity/wire/fields.ts'`],
    ['the inside of another part of core', 'core/bus/planted.ts', `import { toRow } from '../changelog/read.ts'`],
    ['its own room by the # path', 'manager/planted.ts', `import { DEFAULT_TIMING } from '#manager/model/timing.ts'`],
    ['a higher slice', 'api/identity/wire/planted.ts', `import { x } from '../journal/journal.ts'`],
    ['a higher slice of core', 'core/config/planted.ts', `import { createLogger } from '../logging/index.ts'`],
    [
      'what puts the slices together',
      'api/identity/users/planted.ts',
      `import { startIdentity } from '../identity.ts'`,
    ],
    ['a room in the console', 'console/planted.ts', `import { ServiceError } from '#core/errors/index.ts'`],
    ['a file of Node in the engine of trials', 'guests/wasi/planted.ts', `import { Script } from 'node:vm'`],
    ['the transpiler in a runner', 'worker/runner/planted.ts', `import { x } from '#guests/transpiler/index.ts'`],
    ['the API in the design', 'console/design/planted.tsx', `import { call } from '../api/call.ts'`],
    ['a test', 'core/planted.ts', `import { until } from '../test/harness/until.ts'`],
    ['a tool', 'programs/planted.ts', `import '../tools/generate.ts'`],
    ['a package of another owner', 'manager/planted.ts', `import pg from 'pg'`],
    ['a package that nobody owns', 'manager/planted.ts', `import { z } from 'zod'`],
    ['more than the type of a package', 'manager/writer/planted.ts', `import { Client } from 'pg'`],
    ['SQL in routes', 'api/devices/clients/routes.ts', `import { findClient } from './repository.ts'`],
    ['the edge in a service', 'api/devices/clients/service.ts', `import { responses } from '#http/index.ts'`],
    ['a clock in a pure file', 'manager/model/planted.ts', `export const now = () => Date.now()`],
    [
      'a database in a pure file',
      'manager/model/lifecycle.ts',
      `import { createDatabase } from '#core/database/index.ts'`,
    ],
    ['a schema in a rule', 'manager/planted.ts', `import { Type } from 'typebox'`],
    ['SQL of another slice', 'manager/planted.ts', `import { sql } from '#core/sql.ts'`],
    ['what is required', 'manager/planted.ts', `const load = createRequire(import.meta.url)\nload('pg')`],
    ['a computed import', 'core/planted.ts', 'await import(`./${name}.ts`)'],
    ['a file that is not there', 'core/planted.ts', `import { x } from './gone.ts'`],
  ])('finds %s', (_what, path, text) => {
    expect(checkImports([{ path, text }], tree).violations).toHaveLength(1)
  })

  it('no file that runs in a browser too uses a global of Node', () => {
    const shared = sources.filter(({ path }) => IN_BROWSERS.test(path) && !path.endsWith('.test.ts'))
    expect(shared.length).toBeGreaterThan(30)
    expect(shared.filter(({ text }) => /\b(Buffer|process)\.\w/.test(text)).map(({ path }) => path)).toEqual([])
  })

  it('a type is distinguished from a value in one import', () => {
    const { imports } = importsOf({
      path: 'core/x.ts',
      text: `import { type A, b } from 'pg'; import { type C } from 'fastify'`,
    })
    expect(imports.map(({ to, isType }) => [to, isType])).toEqual([
      ['pg', false],
      ['fastify', true],
    ])
  })

  it('the product imports no code of tests and tools', () => {
    expect(
      ROOMS.filter((room) => room.mayImport.some((name) => EXAMINERS.has(name)) && !EXAMINERS.has(room.name)),
    ).toEqual([])
  })
})
