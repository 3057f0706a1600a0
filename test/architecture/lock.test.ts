/** package-lock.json serves every platform and every registry: `npm ci` from a fresh clone depends on it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './source-imports.ts'

type Entry = { version?: string; resolved?: string; link?: boolean; optionalDependencies?: Record<string, string> }
type Declared = Record<string, Record<string, string> | undefined>

const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
  packages: Record<string, Entry>
}
const declared = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Declared
const GROUPS = ['dependencies', 'devDependencies', 'optionalDependencies']

describe('package-lock.json', () => {
  it('holds the packages of every platform, or `npm ci` refuses it; `node tools/complete-lock.ts` adds what is missing', () => {
    const missing = Object.entries(packages).flatMap(([parent, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).filter(
        (name) =>
          packages[`node_modules/${name}`] === undefined && packages[`${parent}/node_modules/${name}`] === undefined,
      ),
    )
    expect(missing).toEqual([])
  })

  it('names no address of a registry', () => {
    expect(
      Object.entries(packages)
        .filter(([, { resolved }]) => resolved !== undefined)
        .map(([name]) => name),
    ).toEqual([])
  })

  it('has the versions of package.json, each exact', () => {
    for (const group of GROUPS) {
      for (const [name, version] of Object.entries(declared[group] ?? {})) {
        expect(version, name).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/)
        expect(packages[`node_modules/${name}`]?.version, name).toBe(version)
      }
    }
  })
})
