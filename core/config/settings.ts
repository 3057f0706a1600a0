/**
 * The types of settings: each is an environment variable with a name, a description, a default and a parser.
 * A room declares its settings as an object of these in its `config.ts`; `readConfig` reads them once.
 */
import { parseSize } from '../bytes/index.ts'
import { parseDurationMs } from '../time.ts'
import { withoutTrailing } from '../text.ts'
import { Secret } from './secret.ts'

export type Setting<T> = {
  /** The variable that is read first; its aliases follow in order. */
  readonly name: string
  readonly aliases: readonly string[]
  /** One sentence with meaning and unit, shown in `docs/settings.md`. */
  readonly description: string
  /** The default as the documentation shows it. */
  readonly defaultText: string
  readonly fallback: T
  readonly isSecret: boolean
  /** Turns text into the value; throws an Error whose message ends the sentence `NAME must be …`. */
  readonly parse: (text: string) => T
}

export type Settings = Record<string, Setting<unknown>>
export type ConfigOf<S extends Settings> = { readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never }

const FOLDER_URL = /^file:\/\/(?:\/[\w.-]+)+$/
/** Names of buckets as every S3-compatible store accepts them. */
const BUCKET_URL = /^s3:\/\/[a-z\d][a-z\d.-]{1,61}[a-z\d](?:\/[\w.-]+)*$/

type Options = { aliases?: readonly string[]; defaultText?: string }

function setting<T>(
  name: string,
  fallback: T,
  description: string,
  parse: (text: string) => T,
  options: Options & { isSecret?: boolean } = {},
): Setting<T> {
  const defaultText =
    options.defaultText ??
    (fallback === undefined ? 'none' : Array.isArray(fallback) ? fallback.join(',') : String(fallback))
  return {
    name,
    aliases: options.aliases ?? [],
    description,
    defaultText: defaultText === '' ? 'none' : defaultText,
    fallback,
    isSecret: options.isSecret ?? false,
    parse,
  }
}

export function text(name: string, fallback: string, description: string, options?: Options): Setting<string> {
  return setting(name, fallback, description, (value) => value, options)
}

export function optionalText(name: string, description: string, options?: Options): Setting<string | undefined> {
  return setting<string | undefined>(name, undefined, description, (value) => value, options)
}

export function secret(name: string, description: string, options?: Options): Setting<Secret | undefined> {
  return setting<Secret | undefined>(name, undefined, description, (value) => new Secret(value), {
    ...options,
    isSecret: true,
  })
}

export function flag(name: string, fallback: boolean, description: string, options?: Options): Setting<boolean> {
  return setting(
    name,
    fallback,
    description,
    (value) => {
      const lower = value.toLowerCase()
      if (lower === 'true' || lower === '1') return true
      if (lower === 'false' || lower === '0') return false
      throw new Error('true or false')
    },
    options,
  )
}

export function integer(
  name: string,
  fallback: number,
  range: { min: number; max: number },
  description: string,
  options?: Options,
): Setting<number> {
  return setting(name, fallback, description, (value) => parseInteger(value, range), options)
}

export function optionalInteger(
  name: string,
  range: { min: number; max: number },
  description: string,
  options?: Options,
): Setting<number | undefined> {
  return setting<number | undefined>(name, undefined, description, (value) => parseInteger(value, range), options)
}

/** A whole number, or `auto`: it depends on the machine. */
export function autoInteger(
  name: string,
  range: { min: number; max: number },
  description: string,
): Setting<number | 'auto'> {
  return setting<number | 'auto'>(name, 'auto', description, (value) => {
    if (value.toLowerCase() === 'auto') return 'auto'
    try {
      return parseInteger(value, range)
    } catch (error) {
      throw new Error(`auto or ${(error as Error).message}`, { cause: error })
    }
  })
}

function parseInteger(value: string, { min, max }: { min: number; max: number }): number {
  const number = Number(value)
  if (!/^-?\d+$/.test(value) || number < min || number > max) throw new Error(`a whole number from ${min} to ${max}`)
  return number
}

/** A share from 0 to 1. */
export function ratio(name: string, fallback: number, description: string): Setting<number> {
  return setting(name, fallback, description, (value) => {
    const number = Number(value)
    if (value.trim() === '' || !(number >= 0 && number <= 1)) throw new Error('a number from 0 to 1')
    return number
  })
}

/** A TCP or UDP port; 0 asks the system for a free one, or turns the listener off where the description says so. */
export function port(name: string, fallback: number, description: string): Setting<number> {
  return integer(name, fallback, { min: 0, max: 65_535 }, description)
}

/** A Go duration (`90s`, `1h30m`) read as milliseconds. */
export function durationMs(name: string, fallbackText: string, description: string): Setting<number> {
  return setting(
    name,
    parseDurationMs(fallbackText, name),
    description,
    (value) => {
      try {
        return parseDurationMs(value, name)
      } catch {
        throw new Error('a duration such as 90s, 15m or 1h30m')
      }
    },
    { defaultText: fallbackText },
  )
}

/** A size in bytes, or with a unit (`1MiB`, `64 MiB`, `2GB`). */
export function bytes(name: string, fallbackText: string, description: string): Setting<number> {
  const parse = (value: string) => {
    const size = parseSize(value)
    if (size === undefined) throw new Error('a size such as 1048576, 512KiB or 1MiB')
    return size
  }
  return setting(name, parse(fallbackText), description, parse, { defaultText: fallbackText })
}

/** A size as `bytes` reads it, of at least `min` bytes. */
export function optionalBytes(
  name: string,
  min: number,
  description: string,
  options?: Options,
): Setting<number | undefined> {
  const parse = (value: string) => {
    const size = parseSize(value)
    if (size === undefined || size < min) throw new Error(`a size of at least ${min} bytes, such as 64KiB or 256MiB`)
    return size
  }
  return setting<number | undefined>(name, undefined, description, parse, options)
}

export function choice<const T extends string>(
  name: string,
  values: readonly T[],
  fallback: NoInfer<T>,
  description: string,
): Setting<T> {
  return setting(name, fallback, description, (value) => {
    const found = values.find((candidate) => candidate === value)
    if (found === undefined) throw new Error(`one of ${values.join(', ')}`)
    return found
  })
}

/** An address with one of these schemes, a host and perhaps a port, without a path. */
export function optionalUrl(
  name: string,
  schemes: readonly string[],
  description: string,
): Setting<string | undefined> {
  const parse = (given: string) => {
    const value = withoutTrailing(given.trim(), '/')
    const [, scheme = '', place = ''] = /^([a-z]+):\/\/(.+)$/.exec(value) ?? []
    if (!schemes.includes(scheme) || !isPlace(place))
      throw new Error(`an address such as ${schemes.map((one) => `${one}://devices.example.com`).join(' or ')}`)
    return value
  }
  return setting<string | undefined>(name, undefined, description, parse)
}

/** `host:port` as other machines reach it. */
export function optionalAddress(name: string, description: string): Setting<string | undefined> {
  const parse = (given: string) => {
    const value = given.trim()
    if (!isPlace(value) || !/:\d+$/.test(value)) throw new Error('host:port, such as workers.example.com:7071')
    return value
  }
  return setting<string | undefined>(name, undefined, description, parse)
}

/** A host, and perhaps a port: nothing that belongs to another part of an address, and nothing that a shell would read. */
const isPlace = (text: string) =>
  /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i.test(text) && URL.canParse(`http://${text}`)

/** A comma-separated list. Spaces around items and empty items are dropped. */
export function list(
  name: string,
  fallback: readonly string[],
  description: string,
  options?: Options,
): Setting<readonly string[]> {
  return setting(
    name,
    fallback,
    description,
    (value) =>
      value
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== ''),
    options,
  )
}

/** Labels as `key=value,key=value`. */
export function labels(name: string, description: string): Setting<Readonly<Record<string, string>>> {
  return setting<Readonly<Record<string, string>>>(
    name,
    {},
    description,
    (value) => {
      const pairs = value
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== '')
      return Object.fromEntries(
        pairs.map((pair) => {
          const [key, ...rest] = pair.split('=')
          if (key === undefined || key === '' || rest.length === 0) throw new Error('a list such as zone=north,gpu=no')
          return [key, rest.join('=')]
        }),
      )
    },
    { defaultText: 'none' },
  )
}

/**
 * A folder as `file:///path`, or a place in a bucket as `s3://bucket/prefix`. Characters that programs would have to encode are refused,
 * because they do it differently.
 */
export function optionalFolderUrl(name: string, description: string): Setting<string | undefined> {
  const parse = (given: string) => {
    const value = withoutTrailing(given.trim(), '/')
    const isPlain = value.split('/').every((part) => part !== '.' && part !== '..')
    if (!isPlain || !(FOLDER_URL.test(value) || BUCKET_URL.test(value)))
      throw new Error(
        'a folder such as file:///var/lib/folder or a bucket such as s3://bucket/prefix, of letters, digits, dots, dashes and underscores',
      )
    return value
  }
  return setting<string | undefined>(name, undefined, description, parse)
}

/** An http or https address; a trailing slash is dropped. */
export function httpUrl(name: string, fallback: string, description: string, options?: Options): Setting<string> {
  const parse = (given: string) => {
    const value = given.trim()
    const url = URL.canParse(value) ? new URL(value) : undefined
    if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
      throw new Error('an address such as https://skein.example.com')
    }
    return withoutTrailing(value, '/')
  }
  return setting(name, fallback, description, parse, options)
}
