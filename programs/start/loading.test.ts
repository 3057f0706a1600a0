/** What a start loads decides how long it takes: what few requests need is not part of it. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

/** Prints the packages. */
const WATCH = `
import { registerHooks } from 'node:module'
const packages = new Set()
registerHooks({
  load(url, context, next) {
    const name = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1]
    if (name !== undefined) packages.add(name)
    return next(url, context)
  },
})
await import('./programs/start/everything.ts')
console.log(JSON.stringify([...packages]))`

const UNUSED = [
  'pino-pretty',
  'nodemailer',
  'redis',
  'pg-copy-streams',
  '@fastify/swagger-ui',
  '@bytecodealliance/jco-transpile',
]

test('a start loads neither what terminals nor what rare requests need', async () => {
  const run = promisify(execFile)
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', WATCH], { encoding: 'utf8' })
  const packages = JSON.parse(stdout) as string[]
  expect(packages).toContain('fastify')
  expect(packages.filter((name) => UNUSED.includes(name) || name.startsWith('@opentelemetry/sdk'))).toEqual([])
})
