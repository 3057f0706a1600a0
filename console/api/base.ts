/** The address of the API, which is beside the console, whatever prefix a reverse proxy gives both. */

/** The address of the console, with a slash at its end. */
export const consoleBase = new URL(document.baseURI)

export const apiBase = new URL('../', consoleBase)

/** The address for command lines, without a slash at its end. */
export const shownBase = apiBase.href.replace(/\/$/, '')
