/** Answers of an S3-compatible store. Elements of these answers have no attributes that matter, and are not nested in their own kind. */

/** Texts of all elements with this name, as the document has them. */
export function elementsOf(document: string, name: string): string[] {
  const [begin, end] = [`<${name}>`, `</${name}>`]
  const found: string[] = []
  for (let at = 0; ;) {
    const from = document.indexOf(begin, at)
    if (from === -1) return found
    const to = document.indexOf(end, from)
    if (to === -1) return found
    found.push(document.slice(from + begin.length, to))
    at = to + end.length
  }
}

const CHARACTERS: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }
const ENTITY = /&(?:(amp|lt|gt|quot|apos)|#(\d{1,7})|#x([0-9a-fA-F]{1,6}));/g

function characterOf(entity: string, name?: string, decimal?: string, hex?: string): string {
  if (name !== undefined) return CHARACTERS[name] ?? entity
  const code = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal)
  return code <= 0x10_ff_ff ? String.fromCodePoint(code) : entity
}

/** The text of the first element with this name; undefined: there is none. */
export function textOf(document: string, name: string): string | undefined {
  return elementsOf(document, name)[0]?.replaceAll(ENTITY, characterOf)
}

/** Writes a text into a document. */
export const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const CODE = /^[A-Za-z]{1,64}$/

/**
 * The code of an error; empty: the answer has none. Nothing else of an error is used: stores write the access key, and what was signed, into
 * their sentences.
 */
export function codeOf(document: string): string {
  const [error] = elementsOf(document, 'Error')
  const code = error === undefined ? undefined : textOf(error, 'Code')
  return code !== undefined && CODE.test(code) ? code : ''
}

export type ListedPage = {
  files: { key: string }[]
  /** Each ends with a slash. */
  folders: string[]
  next: string | undefined
}

/** Keys of a listing that was asked for with `encoding-type=url`; stores that ignore it name their encoding by leaving the element out. */
export function parseListing(document: string): ListedPage {
  const decode = decoderOf(document)
  const next = textOf(document, 'IsTruncated') === 'true' ? textOf(document, 'NextContinuationToken') : undefined
  return {
    files: elementsOf(document, 'Contents').map((entry) => ({ key: decode(textOf(entry, 'Key') ?? '') })),
    folders: elementsOf(document, 'CommonPrefixes').map((entry) => decode(textOf(entry, 'Prefix') ?? '')),
    next,
  }
}

export type ListedUpload = { key: string; id: string; begunMs: number }
export type UploadsPage = { uploads: ListedUpload[]; next: { key: string; id: string } | undefined }

export function parseUploads(document: string): UploadsPage {
  const decode = decoderOf(document)
  const key = textOf(document, 'NextKeyMarker')
  const isMore = textOf(document, 'IsTruncated') === 'true' && key !== undefined && key !== ''
  return {
    uploads: elementsOf(document, 'Upload').map((entry) => ({
      key: decode(textOf(entry, 'Key') ?? ''),
      id: textOf(entry, 'UploadId') ?? '',
      begunMs: Date.parse(textOf(entry, 'Initiated') ?? ''),
    })),
    next: isMore ? { key: decode(key), id: textOf(document, 'NextUploadIdMarker') ?? '' } : undefined,
  }
}

/** Codes of the keys that could not be deleted. */
export function parseDeletion(document: string): Map<string, string> {
  return new Map(
    elementsOf(document, 'Error').map((entry) => {
      const code = textOf(entry, 'Code') ?? ''
      return [textOf(entry, 'Key') ?? '', CODE.test(code) ? code : '']
    }),
  )
}

function decoderOf(document: string): (text: string) => string {
  if (textOf(document, 'EncodingType') !== 'url') return (text) => text
  return (text) => {
    try {
      return decodeURIComponent(text.replaceAll('+', ' '))
    } catch {
      return text
    }
  }
}
