/** The guides of this installation, which it serves as pages beside the API. */
import { apiBase } from './base.ts'
import { ApiError, readError } from './errors.ts'

const CONTENT = '<main>'

/** The content of a guide. Throws `ApiError`. */
export async function readGuide(name: string, signal: AbortSignal): Promise<Element> {
  const address = new URL(`docs/guides/${encodeURIComponent(name)}`, apiBase)
  const response = await fetch(address, { headers: { Accept: 'text/html' }, signal }).catch((error: unknown) => {
    throw ApiError.unreachable(error)
  })
  if (!response.ok) throw await readError(response)
  const page = await response.text()
  // The style of the page is left out, because the policy of the console does not permit it.
  const content = page.slice(page.indexOf(CONTENT) + CONTENT.length, page.lastIndexOf('</main>'))
  return new DOMParser().parseFromString(content, 'text/html').body
}
