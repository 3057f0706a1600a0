/**
 * Tracks whether the end of a JSON text is inside quotation marks, so that values are escaped there: the name of a
 * channel must not be able to add a key to the configuration of a device.
 */
export class JsonText {
  isInString = false
  #isEscaped = false

  follow(text: string): void {
    for (let at = 0; at < text.length; at++) {
      const character = text[at]
      if (this.#isEscaped) this.#isEscaped = false
      else if (character === '"') this.isInString = !this.isInString
      else if (character === '\\' && this.isInString) this.#isEscaped = true
    }
  }
}
