/** Texts that are small to send and dear to read. */

export type Form = { name: string; of: (bytes: number) => string }

/** Pieces, each made of its number, until they have that many characters. */
export function fill(bytes: number, piece: (index: number) => string, separator = ''): string {
  const pieces: string[] = []
  let length = 0
  for (let index = 0; length < bytes; index++) {
    const one = piece(index)
    pieces.push(one)
    length += one.length + separator.length
  }
  return pieces.join(separator)
}

/** Values of JSON. */
export const JSON_VALUES: readonly Form[] = [
  { name: 'nested lists', of: (bytes) => '['.repeat(bytes / 2) + ']'.repeat(bytes / 2) },
  { name: 'nested objects', of: (bytes) => `${'{"a":'.repeat(bytes / 6)}1${'}'.repeat(bytes / 6)}` },
  { name: 'lists side by side', of: (bytes) => `[${fill(bytes, () => `${'['.repeat(60)}${']'.repeat(60)}`, ',')}]` },
  { name: 'a list of numbers', of: (bytes) => `[${fill(bytes, () => '1', ',')}]` },
  { name: 'a list of empty objects', of: (bytes) => `[${fill(bytes, () => '{}', ',')}]` },
  { name: 'a list of objects', of: (bytes) => `[${fill(bytes, (index) => `{"name":"${index}"}`, ',')}]` },
  { name: 'a list of texts', of: (bytes) => `[${fill(bytes, (index) => `"${index}"`, ',')}]` },
  { name: 'many keys', of: (bytes) => `{${fill(bytes, (index) => `"k${index}":1`, ',')}}` },
  {
    name: 'as many keys as are taken',
    of: (bytes) => `{${fill(bytes, (index) => `"${'k'.repeat(28)}${index}":1`, ',')}}`,
  },
  { name: 'keys that are numbers', of: (bytes) => `{${fill(bytes, (index) => `"${index * 7919}":1`, ',')}}` },
  { name: 'one key again and again', of: (bytes) => `{${fill(bytes, () => '"a":1', ',')}}` },
  { name: 'a text', of: (bytes) => `"${'a'.repeat(bytes)}"` },
  { name: 'a text of escapes', of: (bytes) => `"${'\\u0416'.repeat(bytes / 6)}"` },
  { name: 'a text of spaces', of: (bytes) => `"${' '.repeat(bytes)}x"` },
  { name: 'a text of dashes', of: (bytes) => `"${'a-'.repeat(bytes / 2)}!"` },
  { name: 'a number', of: (bytes) => '1'.repeat(bytes) },
  { name: 'numbers with exponents', of: (bytes) => `[${fill(bytes, (index) => `1.${index}e-300`, ',')}]` },
  { name: 'blanks', of: (bytes) => `${' '.repeat(bytes)}1` },
]

export const YAML: readonly Form[] = [
  { name: 'keys', of: (bytes) => fill(bytes, (index) => `k${index}: 1\n`) },
  { name: 'questions', of: (bytes) => `{${'? '.repeat(bytes / 2)}` },
  { name: 'open lists', of: (bytes) => '['.repeat(bytes) },
  { name: 'dashes', of: (bytes) => '- '.repeat(bytes / 2) },
  { name: 'anchors', of: (bytes) => fill(bytes, (index) => `k${index}: &a${index} [1]\n`) },
  {
    name: 'aliases',
    of: (bytes) => `a: &a [${'x,'.repeat(500)}]\n${fill(bytes, (index) => `k${index}: [*a,*a,*a]\n`)}`,
  },
  { name: 'one text', of: (bytes) => `name: "${'\\n'.repeat(bytes / 2)}"` },
  { name: 'comments', of: (bytes) => '# x\n'.repeat(bytes / 4) },
]

export const TOML: readonly Form[] = [
  { name: 'keys', of: (bytes) => fill(bytes, (index) => `k${index} = 1\n`) },
  { name: 'tables', of: (bytes) => fill(bytes, (index) => `[t${index}]\n`) },
  { name: 'dotted keys', of: (bytes) => `${'a.'.repeat(bytes / 2)}a = 1` },
  { name: 'open lists', of: (bytes) => `a = ${'['.repeat(bytes)}` },
  { name: 'items of lists of tables', of: (bytes) => '[[a]]\n'.repeat(bytes / 6) },
  { name: 'blanks', of: (bytes) => `a = ${' '.repeat(bytes)}` },
  { name: 'one text', of: (bytes) => `a = "${'\\n'.repeat(bytes / 2)}"` },
]

export const CSV: readonly Form[] = [
  { name: 'short lines', of: (bytes) => 'a\n'.repeat(bytes / 2) },
  { name: 'empty lines', of: (bytes) => '\n'.repeat(bytes) },
  { name: 'commas', of: (bytes) => ','.repeat(bytes) },
  { name: 'lines of commas in one quoted cell', of: (bytes) => `"${',\n'.repeat(bytes / 2)}"` },
  { name: 'quotes', of: (bytes) => '"'.repeat(bytes) },
  { name: 'quoted cells', of: (bytes) => '"",'.repeat(bytes / 3) },
  { name: 'blanks', of: (bytes) => ' '.repeat(bytes) },
  { name: 'carriage returns', of: (bytes) => '\r'.repeat(bytes) },
  {
    name: 'as many rows as are taken',
    of: (bytes) =>
      fill(bytes, (index) => `${'n'.repeat(100)}${index}\n`)
        .split('\n')
        .slice(0, 10_000)
        .join('\n'),
  },
]

/** Bodies of SenML in JSON. */
export const SENML: readonly Form[] = [
  { name: 'small records', of: (bytes) => `[${fill(bytes, () => '{"n":"a","v":1}', ',')}]` },
  { name: 'records of many names', of: (bytes) => `[${fill(bytes, (index) => `{"n":"n${index}","v":1}`, ',')}]` },
  {
    name: 'as many records as are taken',
    of: (bytes) => `[${fill(Math.min(bytes, 250_000), (index) => `{"n":"n${index}","v":${index}}`, ',')}]`,
  },
  { name: 'base fields alone', of: (bytes) => `[${fill(bytes, () => '{"bn":"a"}', ',')},{"n":"a","v":1}]` },
  { name: 'unknown fields', of: (bytes) => `[{"n":"a","v":1,${fill(bytes, (index) => `"x${index}":1`, ',')}}]` },
]

/** Documents that are no packs. */
export const DOCUMENTS: readonly Form[] = [
  { name: 'small documents', of: (bytes) => `[${fill(bytes, () => '{"a":1}', ',')}]` },
  { name: 'numbers that need care', of: (bytes) => `{"a":[${fill(bytes, () => '1.10', ',')}]}` },
  { name: 'documents of numbers that need care', of: (bytes) => `[${fill(bytes, () => '{"a":1.10}', ',')}]` },
]
