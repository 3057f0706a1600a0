/** Renders a request as a shell command. A saved token is never printed: the command reads it when it runs. */

export type CurlParts = {
  method: string
  url: string
  headers: Readonly<Record<string, string>>
  body?: string | undefined
  file?: string | undefined
  /** Whether the file is a field of a form. */
  isForm?: boolean
  isInsecure: boolean
  /** Secrets that must not be shown, with the shell expression for each. */
  hidden: ReadonlyMap<string, string>
}

export function curlLine({ method, url, headers, body, file, isForm = true, isInsecure, hidden }: CurlParts): string {
  const words = ['curl', '-sS']
  if (isInsecure) words.push('-k')
  if (method !== 'GET') words.push('-X', method)
  for (const [name, value] of Object.entries(headers)) {
    if (file !== undefined && isForm && name === 'Content-Type') continue
    words.push('-H', shellWord(`${name}: ${value}`, hidden))
  }
  if (body !== undefined) words.push('--data-binary', shellWord(body, hidden))
  if (file !== undefined)
    words.push(
      ...(isForm ? ['-F', shellWord(`file=@${file}`, hidden)] : ['--data-binary', shellWord(`@${file}`, hidden)]),
    )
  words.push(shellWord(url, hidden))
  return words.join(' ')
}

/** Single quotes, or double quotes around an expression. */
function shellWord(text: string, hidden: ReadonlyMap<string, string>): string {
  const found = [...hidden].filter(([secret]) => secret !== '' && text.includes(secret))
  if (found.length === 0) return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
  // Secrets are replaced before the rest is escaped, so that a secret with a quote is found too.
  let parts: { text: string; isExpression: boolean }[] = [{ text, isExpression: false }]
  for (const [secret, expression] of found)
    parts = parts.flatMap((part) =>
      part.isExpression
        ? [part]
        : part.text
            .split(secret)
            .flatMap((piece, index) => [
              ...(index === 0 ? [] : [{ text: expression, isExpression: true }]),
              { text: piece, isExpression: false },
            ]),
    )
  return `"${parts.map((part) => (part.isExpression ? part.text : part.text.replaceAll(/["\\`$]/g, '\\$&'))).join('')}"`
}
