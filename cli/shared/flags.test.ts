import { expect, test } from 'vitest'
import { UsageError } from './failures.ts'
import { parseFlags } from './flags.ts'

const SECRET_CHARS = 43

test('an argument may begin with a dash: a number, a PEM block, standard input, a secret', () => {
  const pem = '-----BEGIN CERTIFICATE-----'
  const secrets = ['-G', '-l', '--', '--limit', '-'].map((start) => start.padEnd(SECRET_CHARS, 'x7_-'))
  const words = ['-5', '-', pem, ...secrets]
  expect(parseFlags(words).positionals).toEqual(words)
})

test('flags are distinguished from arguments at any position', () => {
  const { flags, positionals } = parseFlags(['-l5', 'get', '--offset=3', '-r', 'all', '--', '--limit'])
  expect(positionals).toEqual(['get', 'all', '--limit'])
  expect([flags.get('limit'), flags.get('offset'), flags.has('raw')]).toEqual(['5', '3', true])
  expect(() => parseFlags(['-G'])).toThrow(UsageError)
  expect(() => parseFlags(['--no-such-flag'])).toThrow(UsageError)
})

test('an empty value is refused, unless it is content', () => {
  for (const words of [['--publisher', ''], ['--publisher='], ['--domain', ''], ['-n', ''], ['--from', '']])
    expect(() => parseFlags(words), words.join(' ')).toThrow('must not be empty')
  expect(parseFlags(['--description', '']).flags.get('description')).toBe('')
})
