/** SenML names after concatenation with the base name (RFC 8428 section 4.5.1). */

/** The maximum length of a name, because names are keys of the series dictionary. */
export const MAX_NAME_LENGTH = 1024

const NAME = /^[A-Za-z0-9][A-Za-z0-9\-:./_]*$/

/** The violated rule, as the end of a sentence; undefined for a valid name. */
export function nameFault(name: string): string | undefined {
  if (name === '') return 'must not be empty together with the base name'
  if (name.length > MAX_NAME_LENGTH) return `must not exceed ${MAX_NAME_LENGTH} characters together with the base name`
  if (!NAME.test(name)) {
    return 'must, together with the base name, start with a letter or digit and hold letters, digits and -:./_ only'
  }
  return undefined
}
