/** Where the API is: beside the console, whatever prefix a reverse proxy gives both. */

/** The address of the console, with a slash at its end. */
export const consoleBase = new URL(document.baseURI)

export const apiBase = new URL('../', consoleBase)

/** For command lines: the address without a slash at its end. */
export const shownBase = apiBase.href.replace(/\/$/, '')
