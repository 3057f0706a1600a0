import { beforeAll, expect, test, vi } from 'vitest'
import type * as Commands from './commands.ts'

// The address of the console comes from the page.
vi.stubGlobal('document', { baseURI: 'http://skein.example.com/console/' })
let asCurl: (typeof Commands)['asCurl']
let asCli: (typeof Commands)['asCli']
beforeAll(async () => {
  ;({ asCurl, asCli } = await import('./commands.ts'))
})

test('secrets and keys are variables, in JSON and in the columns of a file', () => {
  const mapping = { method: 'POST', path: 'd/mapping', body: { external_id: 'a', external_key: 'hidden', name: 'n' } }
  expect(asCurl(mapping)).toContain(`--data-raw '{"external_id":"a","external_key":"$EXTERNAL_KEY","name":"n"}'`)
  expect(asCli(mapping)).not.toContain('hidden')
  const file = {
    method: 'POST',
    path: 'd/clients/import',
    body: 'name,secret\npump,hidden\n"a, b",hidden\nvalve,\n',
    type: 'text/csv',
  }
  expect(asCurl(file)).toContain(`-H 'Content-Type: text/csv'`)
  expect(asCurl(file)).toContain(`--data-raw 'name,secret\npump,$SECRET\n…\nvalve,\n'`)
  expect(asCli(file)).toBeUndefined()
})

test('a text keeps its content type, and a text that begins with @ is no file', () => {
  const message = { method: 'POST', path: 'm/d/c/x', body: "@it's text", type: 'text/plain' }
  expect(asCurl(message)).toBe(
    `curl -s -X POST "http://skein.example.com/m/d/c/x" -H "Authorization: Bearer $TOKEN" \\\n  -H 'Content-Type: text/plain' \\\n  --data-raw '@it'\\''s text'`,
  )
})
