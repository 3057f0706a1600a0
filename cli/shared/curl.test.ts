import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { curlLine } from './curl.ts'

const base = { method: 'GET', url: 'http://host/a', headers: {}, isInsecure: false, hidden: new Map<string, string>() }

/** The words that a shell parses from the line. */
function argumentsOf(line: string, environment: Record<string, string> = {}): string[] {
  const text = execFileSync('bash', ['--norc', '-c', `printf '%s\\n' ${line}`], {
    encoding: 'utf8',
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return text.replace(/\n$/, '').split('\n')
}

describe('a request as a shell command', () => {
  it('contains method, headers, body and address', () => {
    const line = curlLine({ ...base, method: 'POST', headers: { Accept: 'x/y' }, body: '{"a": 1}', isInsecure: true })
    expect(argumentsOf(line)).toEqual([
      'curl',
      '-sS',
      '-k',
      '-X',
      'POST',
      '-H',
      'Accept: x/y',
      '--data-binary',
      '{"a": 1}',
      'http://host/a',
    ])
  })

  it('quotes the characters that a shell would interpret', () => {
    const body = `it's $HOME and \`id\` "quoted" \\ !`
    expect(argumentsOf(curlLine({ ...base, body })).at(-2)).toBe(body)
    const hidden = new Map([['s3cret', '$PASSWORD']])
    const line = curlLine({ ...base, body: `${body} s3cret`, hidden })
    expect(line).not.toContain('s3cret')
    expect(argumentsOf(line, { PASSWORD: 'other' }).at(-2)).toBe(`${body} other`)
  })

  it('sends a file as a form or as the whole body', () => {
    const headers = { 'Content-Type': 'multipart/form-data; boundary=x' }
    expect(argumentsOf(curlLine({ ...base, headers, file: 'a b.wasm' }))).toEqual([
      'curl',
      '-sS',
      '-F',
      'file=@a b.wasm',
      'http://host/a',
    ])
    const whole = curlLine({ ...base, headers: { 'Content-Type': 'application/wasm' }, file: 'a.wasm', isForm: false })
    expect(argumentsOf(whole)).toContain('@a.wasm')
    expect(argumentsOf(whole)).toContain('Content-Type: application/wasm')
  })
})
