/** Runs `skein` with the words of older command lines, and compares the requests that it makes. */
import assert from 'node:assert'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createHome } from '../cli/skein.ts'
import { startRecorder } from './recorder.ts'
import type { Seen } from './recorder.ts'
import type { Case, ExpectedRequest, Place } from './replay.ts'
import { fill, hasAtLeast } from './values.ts'
import type { Names } from './values.ts'

/** `skein` with the words of an older command line, and the requests that it must cause. */
export async function runCommand(one: Case, names: Names, place: Place): Promise<void> {
  await using platform = await startRecorder(place.platform)
  await using manager = await startRecorder(place.manager)
  using home = createHome({ SKEIN_URL: platform.url, SKEIN_MANAGER_URL: manager.url })
  for (const [file, text] of Object.entries(fill(one.files ?? {}, names))) writeFileSync(join(home.folder, file), text)
  const ended = await home.run(fill(one.command ?? [], names).map(String))
  const seen = [...platform.seen, ...manager.seen]
  const said = `exit ${ended.code}\n${ended.stdout}${ended.stderr}\n${seen.map(({ method, path }) => `${method} ${path}`).join('\n')}`
  assert(ended.code === (one.exit ?? 0), said)
  for (const expected of fill(one.requests ?? [], names))
    assert(
      seen.some((request) => isExpected(request, expected)),
      `${JSON.stringify(expected)}\n${said}`,
    )
  if (one.output !== undefined) assert.match(ended.stdout, new RegExp(fill(one.output, names), 'u'), said)
}

function isExpected(seen: Seen, { method, path, headers = {}, query = {}, body }: ExpectedRequest): boolean {
  return (
    seen.method === method &&
    [path].flat().includes(seen.path) &&
    Object.entries(headers).every(([name, value]) => seen.headers[name.toLowerCase()] === value) &&
    Object.entries(query).every(([name, value]) => seen.query.get(name) === value) &&
    (body === undefined || hasAtLeast(jsonOf(seen.text), body))
  )
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
