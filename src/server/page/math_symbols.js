/* math_symbols.js: LaTeX's names of symbols, for math.js. */
const mathSymbols = (() => {
    const table = (text) =>
        new Map(
            text
                .trim()
                .split(/\s+/)
                .map((pair) => {
                    const at = pair.indexOf(':');
                    return [pair.slice(0, at), pair.slice(at + 1)];
                }),
        );
    return {
        letters:
            table(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ varkappa:ϰ lambda:λ
            mu:μ nu:ν xi:ξ omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω
            ell:ℓ hbar:ℏ imath:ı jmath:ȷ wp:℘ digamma:ϝ`),
        /* upright */
        signs: table(`Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ emptyset:∅ varnothing:∅
            aleph:ℵ beth:ℶ Re:ℜ Im:ℑ forall:∀ exists:∃ nexists:∄ top:⊤ bot:⊥ angle:∠ measuredangle:∡ triangle:△ square:□ Box:□ blacksquare:■ qed:∎ Diamond:◇ lozenge:◊ bigstar:★
            clubsuit:♣ diamondsuit:♢ heartsuit:♡ spadesuit:♠ sharp:♯ flat:♭ natural:♮ checkmark:✓ degree:° hslash:ℏ complement:∁ mho:℧ eth:ð
            ldots:… dots:… cdots:⋯ dotsc:… dotsb:⋯ vdots:⋮ ddots:⋱ prime:′ backprime:‵ pounds:£ euro:€ copyright:© S:§ P:¶ dag:† ddag:‡ %:% $:$ #:# &:& _:_ surd:√`),
        operators:
            table(`pm:± mp:∓ times:× div:÷ cdot:⋅ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ oslash:⊘ odot:⊙ dagger:† ddagger:‡ amalg:⨿
            cap:∩ cup:∪ uplus:⊎ sqcap:⊓ sqcup:⊔ vee:∨ wedge:∧ lor:∨ land:∧ lnot:¬ neg:¬ setminus:∖ smallsetminus:∖ wr:≀ diamond:⋄ bigtriangleup:△ bigtriangledown:▽ triangleleft:◁ triangleright:▷ bigcirc:◯
            leq:≤ le:≤ leqslant:⩽ geq:≥ ge:≥ geqslant:⩾ ll:≪ gg:≫ lll:⋘ ggg:⋙ neq:≠ ne:≠ equiv:≡ sim:∼ simeq:≃ approx:≈ approxeq:≊ cong:≅ ncong:≇ doteq:≐ propto:∝ asymp:≍ triangleq:≜ coloneqq:≔ eqqcolon:≕
            prec:≺ succ:≻ preceq:⪯ succeq:⪰ subset:⊂ supset:⊃ subseteq:⊆ supseteq:⊇ nsubseteq:⊈ nsupseteq:⊉ subsetneq:⊊ supsetneq:⊋ sqsubset:⊏ sqsupset:⊐ sqsubseteq:⊑ sqsupseteq:⊒
            in:∈ notin:∉ ni:∋ owns:∋ mid:∣ nmid:∤ parallel:∥ nparallel:∦ perp:⟂ vdash:⊢ dashv:⊣ models:⊨ vDash:⊨ Vdash:⊩ bowtie:⋈ smile:⌣ frown:⌢ nless:≮ ngtr:≯ nleq:≰ ngeq:≱ lesssim:≲ gtrsim:≳ lessgtr:≶
            leftarrow:← gets:← rightarrow:→ to:→ leftrightarrow:↔ Leftarrow:⇐ Rightarrow:⇒ implies:⟹ impliedby:⟸ iff:⟺ Leftrightarrow:⇔ uparrow:↑ downarrow:↓ updownarrow:↕ Uparrow:⇑ Downarrow:⇓ mapsto:↦ longmapsto:⟼
            longleftarrow:⟵ longrightarrow:⟶ longleftrightarrow:⟷ Longleftarrow:⟸ Longrightarrow:⟹ Longleftrightarrow:⟺ hookleftarrow:↩ hookrightarrow:↪ nearrow:↗ searrow:↘ swarrow:↙ nwarrow:↖
            rightharpoonup:⇀ rightharpoondown:⇁ leftharpoonup:↼ leftharpoondown:↽ rightleftharpoons:⇌ leftrightharpoons:⇋ rightsquigarrow:⇝ leadsto:⇝ nrightarrow:↛ nleftarrow:↚ twoheadrightarrow:↠ upharpoonright:↾
            therefore:∴ because:∵ colon:: lt:< gt:> vert:| Vert:‖ backslash:\\`),
        delimiters:
            table(`langle:⟨ rangle:⟩ lbrace:{ rbrace:} {:{ }:} lbrack:[ rbrack:] lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ vert:| |:‖ lvert:| rvert:| Vert:‖ lVert:‖ rVert:‖
            lgroup:⟮ rgroup:⟯ ulcorner:⌜ urcorner:⌝ llcorner:⌞ lrcorner:⌟ uparrow:↑ downarrow:↓ updownarrow:↕ Uparrow:⇑ Downarrow:⇓ backslash:\\ llbracket:⟦ rrbracket:⟧`),
        /* limits above and below where space permits */
        large: table(
            `sum:∑ prod:∏ coprod:∐ bigcap:⋂ bigcup:⋃ bigvee:⋁ bigwedge:⋀ bigoplus:⨁ bigotimes:⨂ bigodot:⨀ biguplus:⨄ bigsqcup:⨆`,
        ),
        integrals: table(`int:∫ iint:∬ iiint:∭ oint:∮ oiint:∯ smallint:∫`),
        accents: table(
            `hat:^ widehat:^ tilde:~ widetilde:~ bar:¯ vec:→ overrightarrow:→ overleftarrow:← dot:˙ ddot:¨ dddot:⃛ check:ˇ breve:˘ acute:´ grave:\` mathring:˚ overbrace:⏞ overparen:⏜`,
        ),
        below: table(`underbrace:⏟ underrightarrow:→ underleftarrow:←`),
        functions: new Set(
            'arccos arcsin arctan arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh tan tanh sgn'.split(
                ' ',
            ),
        ),
        limits: new Set(
            'det gcd inf lim liminf limsup max min Pr sup argmax argmin injlim projlim varlimsup varliminf'.split(' '),
        ),
        spaces: table(
            `,:.1667 thinspace:.1667 ::.2222 >:.2222 medspace:.2222 ;:.2778 thickspace:.2778 !:-.1667 negthinspace:-.1667 quad:1 qquad:2 enspace:.5`,
        ),
    };
})();
