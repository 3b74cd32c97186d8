//! Visibility of text to a reader.

/// Returns whether the text has a visible character: not white space, not a control character, and
/// not invisible by its Unicode properties.
pub(crate) fn is_visible(text: &str) -> bool {
    text.chars().any(|character| {
        !character.is_whitespace() && !character.is_control() && !is_ignorable(character)
    })
}

/// Returns whether the character has the property `Default_Ignorable_Code_Point` of Unicode 16, is
/// a mark of interlinear annotation, or is drawn as a blank (two characters).
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' // braille without dots
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d159}' // a note without a head
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_without_a_mark_are_invisible() {
        for unseen in [
            "",
            " \t\r\n",
            "\0\u{1}\u{7f}\u{85}",
            "\u{a0}\u{2003}\u{3000}",
            "\u{200b}\u{200c}\u{200d}",
            "\u{2060}\u{feff}",
            "\u{ad}\u{34f}\u{61c}",
            "\u{3164}\u{ffa0}\u{115f}",
            "\u{2800}",
            "\u{fe0f}",
            "\u{e0001}\u{e0020}\u{e007f}",
            "\u{202e}\u{2066}",
        ] {
            assert!(!is_visible(unseen), "{unseen:?}");
        }
        for seen in ["a", "\0a", ".", "ä", "語", "😀", "\u{301}", "\u{200b}!\u{200b}", "\u{e000}"]
        {
            assert!(is_visible(seen), "{seen:?}");
        }
    }
}
